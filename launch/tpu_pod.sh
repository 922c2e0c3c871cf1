#!/usr/bin/env bash
# Trains on a TPU slice of any size, one process a host: asks for the slice (a queued resource), installs, starts on all
# hosts, asks for another slice when this one is preempted. Runs on a machine of yours that has gcloud, not on the TPU:
#   NAME=vmsst ZONE=us-west4-a TYPE=v5litepod-16 VERSION=v2-alpha-tpuv5-lite REPOSITORY=https://... \
#     launch/tpu_pod.sh vmsst_24l.gin --gin.MODEL_DIR='"/mnt/shared/runs/vmsst_24l"' ...
# Fill in: these variables (REPOSITORY: what `git clone` takes), and GCLOUD_FLAGS for the project, a network, --spot or
# --reserved, as in GCLOUD_FLAGS='--project=P --spot'. MODEL_DIR and the data are on storage that all hosts see: a mounted
# Filestore, or a bucket mounted by gcsfuse, in SETUP, a command that every host runs first. It also has to bring Python
# 3.11 to 3.13 with venv where VERSION has an older one, and HOST_PYTHON names it (default python3.11). The recipe's own
# files, such as INIT_CHECKPOINT and VOCABULARY_FILE, lie on that storage too.
# On a host of the slice itself, launch/start.sh does the same for this one host; all of them must run it.
set -uo pipefail

for variable in NAME ZONE TYPE VERSION REPOSITORY; do
  if [ -z "${!variable:-}" ] || [ $# -eq 0 ]; then
    echo "usage: NAME=... ZONE=... TYPE=... VERSION=... REPOSITORY=... $0 RECIPE [--gin.NAME=VALUE ...]" >&2
    exit 2
  fi
done
read -ra flags <<< "--zone=$ZONE ${GCLOUD_FLAGS:-}"
# --spot and --reserved are for the request alone.
common=()
for flag in "${flags[@]}"; do
  case $flag in --spot | --reserved) ;; *) common+=("$flag") ;; esac
done
tpus=(gcloud compute tpus)

state() { # of the request: WAITING_FOR_RESOURCES, PROVISIONING, ACTIVE, SUSPENDED, FAILED, ... or nothing
  "${tpus[@]}" queued-resources describe "$NAME" "${common[@]}" --format='value(state.state)' 2> /dev/null
}

slice() { # waits until there is one
  local now
  while now=$(state); [ "$now" != ACTIVE ]; do
    case $now in
      '')
        "${tpus[@]}" queued-resources create "$NAME" --node-id="$NAME" --accelerator-type="$TYPE" \
          --runtime-version="$VERSION" "${flags[@]}" || return 1
        ;;
      SUSPENDED | SUSPENDING | FAILED)
        echo "$0: the slice is $now; asking for another" >&2
        "${tpus[@]}" queued-resources delete "$NAME" "${common[@]}" --force --quiet || return 1
        ;;
    esac
    sleep 30
  done
}

everywhere() { # a command on all hosts at once: on one alone, JAX would wait for the others
  "${tpus[@]}" tpu-vm ssh "$NAME" "${common[@]}" --worker=all --command="$1"
}

printf -v arguments '%q ' "$@"
setup="${SETUP:-true} && { [ -d vmsst_jax ] || git clone --quiet $REPOSITORY vmsst_jax; } && cd vmsst_jax && \
git pull --quiet --ff-only && { [ -x .venv/bin/python ] || ${HOST_PYTHON:-python3.11} -m venv .venv; } && \
.venv/bin/pip install --quiet -e '.[tpu]'"

while :; do
  slice || exit 1
  # A start script of an earlier try may still run where only this machine's connection broke.
  everywhere "$setup && { pkill -TERM -f '[l]aunch/start.sh' && sleep 120; PLATFORM=tpu STOPPED=75 launch/start.sh $arguments; }"
  code=$?
  case $code in
    0) echo "$0: done; the slice still costs: ${tpus[*]} queued-resources delete $NAME ${common[*]} --force" >&2 ;&
    2) exit "$code" ;;
  esac
  echo "$0: exit code $code; looking at the slice again in 60 s" >&2
  sleep 60
done
