#!/usr/bin/env bash
# Trains on the TPU chips of this host, in one process; to be run on the host:
#   launch/tpu_pod.sh vmsst_6l.gin --gin.MODEL_DIR='"/mnt/data/runs/vmsst_6l"' ...
# PYTHON: an interpreter that has vmsst_jax[tpu]; default: the one in .venv, else python3.
set -euo pipefail

if [ $# -eq 0 ]; then
  echo "usage: $0 RECIPE [--gin.NAME=VALUE ...]" >&2
  exit 2
fi
recipe=$1
shift

# A slice of several hosts needs one process on each, all started together and knowing of each other. Started on one of
# them alone, JAX would wait for the others for ever.
hosts=${TPU_WORKER_HOSTNAMES:-localhost}
if [[ $hosts == *,* ]]; then
  echo "$0: this slice has several hosts ($hosts); training runs in one process, so take a slice of one host" >&2
  exit 2
fi

venv=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin/python
python=${PYTHON:-$([ -x "$venv" ] && echo "$venv" || echo python3)}

# Otherwise JAX would train on the CPU, for months.
if ! "$python" -c 'import jax; jax.devices("tpu")' >/dev/null 2>&1; then
  echo "$0: JAX finds no TPU here; is vmsst_jax[tpu] installed for $python?" >&2
  exit 2
fi

exec "$python" -m vmsst_jax.train --gin_file="$recipe" "$@"
