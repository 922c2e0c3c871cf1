#!/usr/bin/env bash
# Trains on all GPUs of this machine, in one process, and starts again after a failure:
#   launch/gpu_node.sh vmsst_6l.gin --gin.MODEL_DIR='"/data/runs/vmsst_6l"' ...
# Fill in: nothing here; the recipe's folders on the command line. See start.sh for PYTHON and RESTARTS.
set -euo pipefail
PLATFORM=gpu exec "$(dirname "$0")/start.sh" "$@"
