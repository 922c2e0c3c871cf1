#!/usr/bin/env bash
# Trains on this machine, and starts again where that helps. The other scripts of this folder end up here, on each machine.
#   launch/start.sh RECIPE [--gin.NAME=VALUE ...] [flags of vmsst_jax.train]
# All of it is optional:
#   PLATFORM   gpu, tpu or cpu: what must be here, else nothing is started
#   LOCAL      number of processes on this machine, to try out several (default 1; more machines are found by themselves)
#   PORT       of process 0 for LOCAL (default 8476; the next one is used too)
#   RESTARTS   how often to start again, at most (default 100)
#   GRACE      seconds that the others have after one process has failed (default 120), before they are killed
#   STOPPED    the exit code after SIGTERM or SIGINT, which save first (default 0); 75 for a scheduler that would otherwise
#              take a preempted job for a finished one
#   PYTHON     an interpreter that has vmsst_jax; default: the one in .venv, else python3
# Exit codes: 0 done, or saved after SIGTERM or SIGINT (or STOPPED); 2 a mistake that starting again doesn't mend; else the
# last failure.
set -uo pipefail

if [ $# -eq 0 ]; then
  echo "usage: $0 RECIPE [--gin.NAME=VALUE ...]" >&2
  exit 2
fi
recipe=$1
shift

venv=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin/python
python=${PYTHON:-$([ -x "$venv" ] && echo "$venv" || echo python3)}

# Otherwise JAX would train on the CPU, for months. A TPU pod's chips can't be asked by one host alone.
case ${PLATFORM:-} in
  gpu)
    if ! "$python" -c 'import jax; jax.devices("gpu")' > /dev/null 2>&1; then
      echo "$0: JAX finds no GPU here; is vmsst_jax[gpu] installed for $python?" >&2
      exit 2
    fi
    ;;
  tpu)
    if ! compgen -G '/dev/accel*' > /dev/null && ! compgen -G '/dev/vfio/[0-9]*' > /dev/null; then
      echo "$0: there is no TPU here" >&2
      exit 2
    fi
    export JAX_PLATFORMS=tpu,cpu
    ;;
  cpu) export JAX_PLATFORMS=cpu ;;
  '') ;;
  *)
    echo "$0: PLATFORM is '$PLATFORM'; wanted gpu, tpu or cpu" >&2
    exit 2
    ;;
esac

# Large arrays in large pages: on a CPU a training step takes a seventh less time.
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}

count=${LOCAL:-1}
pids=()
stopping=

forward() {
  stopping=yes
  kill -TERM "${pids[@]}" 2> /dev/null
}
trap forward TERM INT

start() { # the processes, in the background
  pids=()
  for ((i = 0; i < count; i++)); do
    if ((count > 1)); then
      JAX_COORDINATOR_ADDRESS=localhost:${PORT:-8476} JAX_NUM_PROCESSES=$count JAX_PROCESS_ID=$i \
        "$python" -m vmsst_jax.train --gin_file="$recipe" "$@" &
    else
      "$python" -m vmsst_jax.train --gin_file="$recipe" "$@" &
    fi
    pids+=($!)
  done
}

finish() { # waits for all; returns 2 if one returned that, else the first failure
  local left=("${pids[@]}") running deadline=0 result=0 code pid
  while ((${#left[@]})); do
    running=()
    for pid in "${left[@]}"; do
      if kill -0 "$pid" 2> /dev/null; then
        running+=("$pid")
        continue
      fi
      wait "$pid"
      code=$?
      if ((code)); then
        ((result == 0 || code == 2)) && result=$code
        ((deadline)) || deadline=$((SECONDS + ${GRACE:-120}))
      fi
    done
    left=("${running[@]+"${running[@]}"}")
    if ((deadline && SECONDS > deadline && ${#left[@]})); then
      echo "$0: ${#left[@]} process(es) did not end by themselves and are killed" >&2
      kill -KILL "${left[@]}" 2> /dev/null
    fi
    # A signal ends the wait, not the sleep.
    ((${#left[@]})) && { sleep 1 & wait $!; }
  done
  return "$result"
}

again=0
while :; do
  begun=$SECONDS
  start "$@"
  finish
  code=$?
  ((code == 0)) && [ -n "$stopping" ] && exit "${STOPPED:-0}"
  if ((code == 0 || code == 2)) || [ -n "$stopping" ]; then
    exit "$code"
  fi
  ((SECONDS - begun > 600)) && again=0 # that run got somewhere
  if ((again >= ${RESTARTS:-100})); then
    echo "$0: exit code $code, after $again restart(s)" >&2
    exit "$code"
  fi
  pause=$((again < 6 ? 2 ** again : 60))
  again=$((again + 1))
  echo "$0: exit code $code; starting again in $pause s ($again of at most ${RESTARTS:-100})" >&2
  sleep "$pause" & wait $!
  [ -n "$stopping" ] && exit "$code"
done
