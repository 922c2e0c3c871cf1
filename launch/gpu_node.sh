#!/usr/bin/env bash
# Trains on all GPUs of this machine, in one process:
#   launch/gpu_node.sh vmsst_6l.gin --gin.MODEL_DIR='"/data/runs/vmsst_6l"' ...
# PYTHON: an interpreter that has vmsst_jax[gpu]; default: the one in .venv, else python3.
set -euo pipefail

if [ $# -eq 0 ]; then
  echo "usage: $0 RECIPE [--gin.NAME=VALUE ...]" >&2
  exit 2
fi
recipe=$1
shift

venv=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin/python
python=${PYTHON:-$([ -x "$venv" ] && echo "$venv" || echo python3)}

# Otherwise JAX would train on the CPU, for months.
if ! "$python" -c 'import jax; jax.devices("gpu")' >/dev/null 2>&1; then
  echo "$0: JAX finds no GPU here; is vmsst_jax[gpu] installed for $python?" >&2
  exit 2
fi

exec "$python" -m vmsst_jax.train --gin_file="$recipe" "$@"
