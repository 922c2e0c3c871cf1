"""python -m vmsst_jax.profile --gin_file=vmsst_24l.gin [--topology=v5e:2x4]: what a recipe needs, before it runs."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.profile"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags, calls ``training.profiling.profile``, prints its table and writes its JSON."""
    flags = command.parser(
        NAME,
        "Memory, arithmetic, traffic between devices and speed of a recipe's training step. Reads no data: batches "
        "have the recipe's shapes. The recipe and --gin.NAME=VALUE are given as to vmsst_jax.train.",
    )
    command.add_recipe_flags(flags)
    add = flags.add_argument
    where = flags.add_mutually_exclusive_group()
    where.add_argument(
        "--devices", type=command.positive, metavar="N", help="compile for N fake CPU devices instead of those here"
    )
    where.add_argument(
        "--topology",
        metavar="NAME",
        help="compile for TPUs that are not here, as v5e:2x4 or v4:2x2x4 (extra `tpu`); the numbers are chips",
    )
    add("--steps", type=command.natural, default=5, metavar="N", help="steps to time on devices here (%(default)s)")
    add("--trace", metavar="DIR", help="write a trace of one step for TensorBoard or xprof, a file for each process")
    add("--memory", type=float, metavar="GB", help="a device's memory, to be compared with what is needed")
    add("--output", metavar="FILE", help="write all figures as JSON")
    command.add_process_flags(flags)
    arguments, rest = flags.parse_known_args(argv)
    if arguments.trace and (arguments.devices or arguments.topology or not arguments.steps):
        flags.error("--trace needs steps on real devices: leave --devices and --topology away, and --steps above 0")
    if arguments.trace and pathlib.Path(arguments.trace).is_file():
        flags.error(f"--trace {arguments.trace} is a file; wanted a folder")
    if arguments.memory is not None and not 0 < arguments.memory < math.inf:
        flags.error(f"--memory is {arguments.memory}; wanted a device's GB, above 0")
    if arguments.output and not pathlib.Path(arguments.output).absolute().parent.is_dir():
        flags.error(f"--output {arguments.output}: there is no such folder; make it first")

    from vmsst_jax import company, processes, runtime

    here = not (arguments.devices or arguments.topology)
    flagged = {"coordinator": arguments.coordinator, "count": arguments.processes, "index": arguments.process_id}
    place = processes.find(**flagged) if here else None
    if arguments.devices:
        runtime.fake_devices(arguments.devices)
    runtime.start()
    with company.together(place, NAME, arguments.join_timeout, arguments.lost_after):
        report(arguments, rest)


def report(arguments, rest: Sequence[str]) -> None:
    """Profiles the recipe of the parsed ``arguments``; of several processes all take part and the first one reports."""
    from vmsst_jax import company, config, runtime

    bindings = arguments.gin_bindings + config.short_bindings(rest)
    recipe = config.configure(arguments.gin_file, bindings, arguments.gin_search_paths.split(",")).keywords

    import jax

    from vmsst_jax.training import profile_report, profiling

    devices = runtime.topology(arguments.topology) if arguments.topology else jax.devices()
    steps = 0 if arguments.devices or arguments.topology else arguments.steps
    found = profiling.profile(recipe, devices, steps=steps, trace=arguments.trace)
    if company.here().index:
        return
    print(profile_report.text(found, arguments.memory))
    if arguments.output:
        profile_report.write(arguments.output, found)


if __name__ == "__main__":
    command.run(NAME, main)
