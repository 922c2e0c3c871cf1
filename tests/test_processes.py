"""Which process this is, from flags and from the environments of Slurm, Open MPI, Kubernetes and TPU slices."""

import http.server
import threading

import pytest

from vmsst_jax import processes
from vmsst_jax.processes import Place, find

SLURM = {"SLURM_JOB_ID": "5007", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2", "SLURM_STEP_NODELIST": "n[07-09],m1"}
OMPI = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1"}
TPU = {"TPU_WORKER_HOSTNAMES": "t-0,t-1", "TPU_WORKER_ID": "1"}


@pytest.mark.parametrize(
    ("environ", "flags", "place"),
    [
        ({}, {}, None),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, {}, None),
        ({}, dict(coordinator="a:700", count=2, index=1), Place(2, 1, "a", 700, "the command line")),
        ({}, dict(coordinator="[::1]:700", count=2, index=1), Place(2, 1, "::1", 700, "the command line")),
        ({}, dict(count=1, index=0), None),
        (SLURM, dict(coordinator="a", count=2, index=0), Place(2, 0, "a", processes.PORT, "the command line")),
        (
            {"JAX_COORDINATOR_ADDRESS": "a:9", "JAX_NUM_PROCESSES": "2", "JOB_COMPLETION_INDEX": "1"},
            {},
            Place(2, 1, "a", 9, "the environment"),
        ),
        (SLURM, {}, Place(4, 2, "n07", 20014, "Slurm")),
        (SLURM, dict(coordinator="ib1:98"), Place(4, 2, "ib1", 98, "Slurm")),
        ({**SLURM, "JAX_COORDINATOR_ADDRESS": ":99"}, {}, Place(4, 2, "n07", 99, "Slurm")),
        ({**SLURM, "JAX_COORDINATOR_ADDRESS": "ib0:99"}, {}, Place(4, 2, "ib0", 99, "Slurm")),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, {}, None),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, {}, None),  # a batch script without srun
        (
            {**OMPI, "OMPI_MCA_orte_hnp_uri": "37;tcp://10.0.0.4,172.17.0.1:41051"},
            {},
            Place(3, 1, "10.0.0.4", processes.PORT, "Open MPI"),
        ),
        (TPU, {}, Place(2, 1, "t-0", processes.PORT, "the TPU's environment")),
        (
            {**TPU, "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "s-0:8"},
            {},
            Place(4, 3, "s-0", processes.PORT, "the TPU's environment"),
        ),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, {}, None),
    ],
)
def test_where_a_process_stands(environ, flags, place):
    assert find(environ, **flags) == place


@pytest.mark.parametrize(
    ("environ", "flags", "message"),
    [
        ({}, dict(count=2), "the command line doesn't say this process's number, process 0's address"),
        (OMPI, {}, "Open MPI doesn't say process 0's address"),
        ({"JAX_NUM_PROCESSES": "two", "JAX_PROCESS_ID": "0", "JAX_COORDINATOR_ADDRESS": "a"}, {}, "gives 'two' as the"),
        ({}, dict(coordinator="a:1", count=2, index=2), "process 2 of 2; wanted one from 0 to 1"),
        ({}, dict(coordinator="a:http", count=2, index=0), "'a:http' as process 0's address; wanted HOST:PORT"),
        ({}, dict(coordinator="a:65535", count=2, index=0), "a port below 65535"),
        ({}, dict(coordinator="a:1:2", count=2, index=0), "'a:1:2' as process 0's address; wanted HOST:PORT"),
        ({}, dict(coordinator="a:1", count=0, index=0), "the command line says that there are 0 processes"),
        ({**SLURM, "SLURM_JOB_ID": "abc"}, {}, "Slurm gives 'abc' as the SLURM_JOB_ID; wanted a whole number"),
    ],
)
def test_what_does_not_say_enough(environ, flags, message):
    with pytest.raises(ValueError, match=message):
        find(environ, **flags)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n1", "n1"), ("n1,n2", "n1"), ("gpu[001-004]", "gpu001"), ("gpu[7,9]", "gpu7"), ("r[1-2]-ib,x", "r1-ib")],
)
def test_first_of_slurms_nodes(nodes, first):
    assert processes.first_node(nodes) == first


def test_a_tpu_machine_asks_its_metadata_server(monkeypatch, tmp_path):
    answers = {"worker-network-endpoints": "x:0:10.0.0.2,x:1:10.0.0.3", "agent-worker-number": "1"}

    class Metadata(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = answers.get(self.path.rpartition("/")[2])
            good = found is not None and self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if good else 404)
            self.end_headers()
            self.wfile.write((found or "").encode())

        def log_message(self, *_):
            pass

    (tmp_path / "vendor").write_text("0x1ae0\n")
    monkeypatch.setattr(processes, "PCI_DEVICES", str(tmp_path / "vendor"))
    monkeypatch.setattr(processes.importlib.util, "find_spec", lambda name: name)
    with http.server.ThreadingHTTPServer(("localhost", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environ = {"GCE_METADATA_IP": f"localhost:{server.server_port}"}
        place = Place(2, 1, "10.0.0.2", processes.PORT, "the TPU's metadata server")
        assert find(environ) == place
        assert find({**environ, "JAX_PLATFORMS": "cpu"}) is None
        answers.clear()
        assert find(environ) is None
        server.shutdown()
