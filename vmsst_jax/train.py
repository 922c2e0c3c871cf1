"""Trains a model: ``python -m vmsst_jax.train --gin_file=quickstart.gin [--gin.NAME=VALUE ...]``.

Recipes are found in the current folder, in --gin_search_paths and in the installed package. The same command resumes.
Of several processes each runs this command; see launch/.
"""

from __future__ import annotations

from vmsst_jax import command

NAME = "vmsst_jax.train"


def main(argv=None) -> None:
    flags = command.parser(NAME, "Trains a model from gin recipes; the same command goes on where a run was stopped.")
    command.add_recipe_flags(flags)
    command.add_process_flags(flags)
    arguments, rest = flags.parse_known_args(argv)

    from vmsst_jax import company, config, processes, runtime

    place = processes.find(coordinator=arguments.coordinator, count=arguments.processes, index=arguments.process_id)
    runtime.start()
    with company.together(place, NAME, arguments.join_timeout, arguments.lost_after):
        bindings = arguments.gin_bindings + config.short_bindings(rest)
        train = config.configure(arguments.gin_file, bindings, arguments.gin_search_paths.split(","))
        train()


if __name__ == "__main__":
    command.run(NAME, main)
