"""Which process of how many this one is, and where process 0 is: from flags or from what started the processes.

Known are our own variables (``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES``, ``JAX_PROCESS_ID``; in a Kubernetes
indexed job ``JOB_COMPLETION_INDEX`` gives the last), Slurm's, Open MPI's, and what a TPU slice says of itself: in the
environment of a pod, or through the metadata server of its virtual machines. Nothing here starts JAX.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import NamedTuple

PORT = 8476  # of process 0, where nothing else says one; the next one is used too
METADATA = "metadata.google.internal"
METADATA_SECONDS = 5.0
PCI_DEVICES = "/sys/bus/pci/devices/*/vendor"
GOOGLE = "0x1ae0"  # the PCI vendor of TPU chips


class Place(NamedTuple):
    """This process's ``index`` among ``count``; process 0 listens at ``host`` on ``port`` and ``port + 1``; ``source``
    says where that is known from."""

    count: int
    index: int
    host: str
    port: int
    source: str


def find(
    environ: Mapping[str, str] = os.environ,
    *,
    coordinator: str | None = None,
    count: int | None = None,
    index: int | None = None,
) -> Place | None:
    """This process's place; None where it is the only one.

    Args:
      environ: the environment to read.
      coordinator, count, index: flags, which win over the environment: "HOST:PORT" or "HOST" of process 0, the number
        of processes, the number of this one.

    Raises:
      ValueError: something is missing or contradicts itself; the message says what, and from where the rest is known.
    """
    if coordinator:
        environ = {**environ, "JAX_COORDINATOR_ADDRESS": coordinator}
    own = _flags_or_own(environ, coordinator, count, index)
    found = own or _slurm(environ) or _open_mpi(environ) or _tpu(environ)
    if found is None:
        return None
    source, count, index, address = found
    if count is None or index is None or not (address or count in (1, "1")):
        named = {"the number of processes": count, "this process's number": index, "process 0's address": address}
        missing = ", ".join(name for name, value in named.items() if value in (None, ""))
        raise ValueError(
            f"{source} doesn't say {missing}. Give --coordinator=HOST:PORT, --processes=N and --process_id=I, or "
            "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID, to every process"
        )
    count, index = _whole(source, "number of processes", count), _whole(source, "process number", index)
    if count < 1:
        raise ValueError(f"{source} says that there are {count} processes; wanted 1 or more")
    if not 0 <= index < count:
        raise ValueError(f"{source} says that this is process {index} of {count}; wanted one from 0 to {count - 1}")
    if count == 1:
        return None
    host, port = _split(address, source)
    return Place(count, index, host, port, source)


def _flags_or_own(environ, coordinator, count, index):
    source = "the command line" if (coordinator, count, index) != (None, None, None) else "the environment"
    count = environ.get("JAX_NUM_PROCESSES") if count is None else count
    if count is None and index is None:
        return None  # an address alone: for the schedulers below, or for other programs
    index = environ.get("JAX_PROCESS_ID", environ.get("JOB_COMPLETION_INDEX")) if index is None else index
    return source, count, index, environ.get("JAX_COORDINATOR_ADDRESS")


def _slurm(environ):
    # Only srun sets a step's size: a batch script that calls Python by itself is one process.
    count = environ.get("SLURM_STEP_NUM_TASKS")
    if count is None or "SLURM_PROCID" not in environ:
        return None
    nodes = environ.get("SLURM_STEP_NODELIST", environ.get("SLURM_JOB_NODELIST", ""))
    # Jobs that share a machine get ports of their own.
    port = 20000 + 2 * (_whole("Slurm", "SLURM_JOB_ID", environ.get("SLURM_JOB_ID", "0")) % 5000)
    return "Slurm", count, environ["SLURM_PROCID"], _address(environ, first_node(nodes), port)


def first_node(nodes: str) -> str:
    """The first host of a list as Slurm writes it: ``n[007-009,12],m`` -> ``n007``."""
    match = re.match(r"([^,\[]*)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in match.groups())


def _open_mpi(environ):
    if "OMPI_COMM_WORLD_SIZE" not in environ:
        return None
    # tcp://10.0.0.1,172.17.0.1:41051 is where mpirun itself is, whose machine has rank 0; newer versions don't say it.
    uri = re.search(r"tcp://([^,:;]+)", environ.get("OMPI_MCA_orte_hnp_uri", ""))
    address = _address(environ, uri[1] if uri else "", PORT)
    return "Open MPI", environ["OMPI_COMM_WORLD_SIZE"], environ.get("OMPI_COMM_WORLD_RANK"), address


def _tpu(environ):
    """The workers of a TPU slice, and of several slices that train together (MEGASCALE_...)."""
    workers, worker = environ.get("TPU_WORKER_HOSTNAMES"), environ.get("TPU_WORKER_ID")
    source = "the TPU's environment"
    if workers is None or worker is None:
        if not _on_tpu_machine(environ):
            return None
        source = "the TPU's metadata server"
        endpoints, worker = _metadata(environ, "worker-network-endpoints"), _metadata(environ, "agent-worker-number")
        if endpoints is None or worker is None:
            return None
        # HOST, or NAME:ID:IP in older ones.
        workers = ",".join(endpoint.split(":")[-1] for endpoint in endpoints.split(","))
    hosts = [host.strip() for host in workers.split(",") if host.strip()]
    slices = _whole(source, "MEGASCALE_NUM_SLICES", environ.get("MEGASCALE_NUM_SLICES", "1"))
    which = _whole(source, "MEGASCALE_SLICE_ID", environ.get("MEGASCALE_SLICE_ID", "0"))
    first = environ.get("MEGASCALE_COORDINATOR_ADDRESS", "").split(":")[0] or (hosts[0] if hosts else "")
    index = which * len(hosts) + _whole(source, "worker number", worker)
    return source, slices * len(hosts), index, _address(environ, first, PORT)


def _on_tpu_machine(environ) -> bool:
    """Whether this machine has TPU chips and a metadata server may be asked; nobody waits for one elsewhere."""
    if "TPU_SKIP_MDS_QUERY" in environ or importlib.util.find_spec("libtpu") is None:
        return False
    if environ.get("JAX_PLATFORMS", "tpu").split(",")[0] not in ("", "tpu"):
        return False
    return any(open(file).read().strip() == GOOGLE for file in glob.glob(PCI_DEVICES))


def _metadata(environ, name: str) -> str | None:
    host = environ.get("GCE_METADATA_IP", METADATA)
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/attributes/{name}", headers={"Metadata-Flavor": "Google"}
    )
    try:
        with urllib.request.urlopen(request, timeout=METADATA_SECONDS) as answer:
            return answer.read().decode().strip()
    except (urllib.error.URLError, TimeoutError):
        return None


def _address(environ, host: str, port: int) -> str:
    """The address that was given, or this one; of an address ":PORT" the port alone counts."""
    given = environ.get("JAX_COORDINATOR_ADDRESS", "")
    if given.startswith(":"):
        return f"{host}{given}" if host else ""
    return given or (f"{host}:{port}" if host else "")


def _whole(source: str, what: str, value) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{source} gives {value!r} as the {what}; wanted a whole number") from None


def _split(address: str, source: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, str(PORT)
    misread = ":" in host and not (host.count(":") > 1 or host.startswith("["))  # HOST:PORT:PORT, no IPv6 address
    if not host or misread or not port.isdecimal() or not 0 < int(port) < 65535:
        raise ValueError(
            f"{source} gives {address!r} as process 0's address; wanted HOST:PORT with a port below 65535, as in "
            f"10.0.0.1:{PORT}"
        )
    return host.strip("[]"), int(port)
