#!/usr/bin/env bash
# Trains on the GPUs of several nodes under Slurm, one process a node, and goes on after a failure, a preemption or the end
# of the time limit:
#   sbatch launch/slurm.sh vmsst_24l.gin --gin.MODEL_DIR='"/shared/runs/vmsst_24l"' ...
# Fill in: the #SBATCH lines below (or give them to sbatch), and where the clone with its .venv is, if you don't submit from
# there (CLONE). MODEL_DIR and the data are on storage that all nodes see.
# Also: PLATFORM (default gpu), REQUEUES (how often the job goes back to the queue, default 50), RESTARTS (how often a node
# starts its process again before that, default 3), LOST_AFTER (seconds of silence, default 60).
#SBATCH --job-name=vmsst_jax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=vmsst_jax-%j.log
#SBATCH --signal=B:TERM@300
set -uo pipefail

if [ $# -eq 0 ] || [ -z "${SLURM_JOB_ID:-}" ]; then
  echo "usage: sbatch $0 RECIPE [--gin.NAME=VALUE ...]" >&2
  exit 2
fi
# Slurm runs a copy of this file.
clone=${CLONE:-$SLURM_SUBMIT_DIR}
export PLATFORM=${PLATFORM:-gpu} RESTARTS=${RESTARTS:-3}

stopping=
step=
stop() { # 300 s before the end of the time, or at a preemption: save, then queue again
  stopping=yes
  kill -TERM "$step" 2> /dev/null
}
trap stop TERM

srun --kill-on-bad-exit=1 "$clone/launch/start.sh" "$@" --lost_after="${LOST_AFTER:-60}" &
step=$!
wait "$step"
code=$?
while kill -0 "$step" 2> /dev/null; do # the trap ended the wait
  wait "$step"
  code=$?
done

if [ -z "$stopping" ] && ((code == 0 || code == 2)); then
  exit "$code" # done, or a mistake that starting again doesn't mend
fi
if ((${SLURM_RESTART_COUNT:-0} >= ${REQUEUES:-50})); then
  echo "$0: exit code $code, after ${SLURM_RESTART_COUNT:-0} requeues" >&2
  exit "$code"
fi
echo "$0: exit code $code${stopping:+ after SIGTERM}; back to the queue" >&2
scontrol requeue "$SLURM_JOB_ID"
# Slurm ends this script; until then it must not look done.
sleep 60
