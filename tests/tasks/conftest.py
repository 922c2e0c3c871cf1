"""Registrations of one test don't reach the next; datasets are read as plain Python dicts."""

import pytest


@pytest.fixture
def registry():
    """The seqio module; what a test registers is removed after it."""
    import seqio

    # What they register stays.
    from vmsst_jax.tasks import common_crawl, gettext, gnome_help, local_documents, local_sets, opus  # noqa: F401

    before = {kind: set(kind.names()) for kind in (seqio.TaskRegistry, seqio.MixtureRegistry)}
    yield seqio
    for kind, names in before.items():
        for name in set(kind.names()) - names:
            kind.remove(name)


@pytest.fixture
def read():
    """Function (provider or name, split, **options of get_dataset) -> list of examples with str for bytes."""
    import seqio

    def examples(provider, split="train", **options):
        if isinstance(provider, str):
            provider = seqio.get_mixture_or_task(provider)
        dataset = provider.get_dataset(
            sequence_length=None, split=split, **{"shuffle": False, "num_epochs": 1, **options}
        )
        rows = dataset.as_numpy_iterator()
        return [{k: v.decode() if isinstance(v, bytes) else int(v) for k, v in row.items()} for row in rows]

    return examples


@pytest.fixture
def gin_bindings():
    """Function (binding, ...) that binds gin parameters; the configuration is empty before and after the test."""
    import gin

    gin.clear_config()
    yield lambda *bindings: gin.parse_config(bindings)
    gin.clear_config()
