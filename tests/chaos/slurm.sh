#!/usr/bin/env bash
# Slurm for real on one machine: two node daemons, launch/slurm.sh with two CPU processes, one of them killed; the job goes
# back to the queue by itself and completes. As root on Debian, after apt-get install slurm-wlm munge:
#   tests/chaos/slurm.sh [FOLDER]
# Everything it makes and writes is in FOLDER (a temporary one without it), but for /run/munge. PYTHON: an interpreter that
# has vmsst_jax; default: the one in .venv, else python3.
set -euo pipefail

clone=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath "${1:-$(mktemp -d)}")
python=${PYTHON:-$([ -x "$clone/.venv/bin/python" ] && echo "$clone/.venv/bin/python" || echo python3)}
host=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf

for tool in munged slurmctld slurmd sbatch; do
  command -v "$tool" > /dev/null || { echo "$0: there is no $tool here: apt-get install slurm-wlm munge" >&2; exit 2; }
done

daemons=()
finish() {
  kill "${daemons[@]}" 2> /dev/null || true
  wait || true
}
trap finish EXIT

mkdir -p "$folder"/{state,spool.n1,spool.n2} /run/munge
chmod 755 "$folder" # /tmp's folders are private
[ -f "$folder/munge.key" ] || (umask 077 && head -c 1024 /dev/urandom > "$folder/munge.key")
munged --foreground --force --key-file="$folder/munge.key" --log-file="$folder/munged.log" \
  --pid-file="$folder/munged.pid" --seed-file="$folder/munge.seed" --socket="$folder/munge.socket" \
  > "$folder/munged.out" 2>&1 &
daemons+=($!)

cat > "$SLURM_CONF" << END
ClusterName=here
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=27817
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdSpoolDir=$folder/spool.%n
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmdLogFile=$folder/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=27818 CPUs=2
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=27819 CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES
END
slurmctld -D > "$folder/slurmctld.out" 2>&1 &
daemons+=($!)
for node in n1 n2; do
  slurmd -D -N "$node" > "$folder/slurmd.$node.out" 2>&1 &
  daemons+=($!)
done
until [ "$(sinfo --noheader --Node --states=idle 2> /dev/null | wc -l)" = 2 ]; do sleep 1; done
sinfo

# The nodes' names are no hosts here, so process 0's address is given.
"$python" "$clone/tests/chaos/cluster.py" "$folder/work"
cd "$folder/work"
job=$(JAX_COORDINATOR_ADDRESS=localhost:27820 CLONE=$clone PYTHON=$python PYTHONPATH="$folder/work:$clone" PLATFORM=cpu \
  RESTARTS=0 TF_CPP_MIN_LOG_LEVEL=3 JAX_COMPILATION_CACHE_DIR="$folder/compiled" \
  sbatch --parsable --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --gpus-per-node=0 --mem=0 --time=30 \
  "$clone/launch/slurm.sh" vmsst.gin --gin.MODEL_DIR='"run"' --gin.TRAIN_STEPS=60 --gin.Rhythm.save_every=5)
log=vmsst_jax-$job.log

ended() { # the job's state, if it is a last one
  scontrol show job "$job" | grep -oE 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'
}
until [ -e run/checkpoints/5/sha256sums.txt ]; do
  sleep 0.2
  if ended; then tail -n 30 "$log"; exit 1; fi
done
# One of the two: the oldest is as good as another.
victim=$(pgrep -o -f -- "-m vmsst_jax.train --gin_file=vmsst.gin --gin.MODEL_DIR=\"run\"")
echo "job $job has saved step 5; killing its process $victim"
kill -KILL "$victim"
until [ "$(scontrol show job "$job" | grep -oE 'Restarts=[0-9]+')" = Restarts=1 ]; do sleep 0.5; done
echo "job $job is back in the queue"
# Slurm waits for two minutes before it starts a job again.
until scontrol update JobId="$job" StartTime=now 2> /dev/null || ended > /dev/null; do sleep 1; done
until ended; do sleep 1; done
scontrol show job "$job" | grep -oE 'JobState=\S+|Restarts=\S+|ExitCode=\S+' | paste -sd' '
grep -E 'is lost|back to the queue|resuming after|step 60/60' "$log"
[ "$(ended)" = JobState=COMPLETED ]
