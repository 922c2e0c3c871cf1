"""Registers the task `gettext`: messages of gettext catalogues and their translations, English on one side.

By default it reads the compiled catalogues that the installed packages Django, Django REST framework, allauth and
Sphinx ship (extra `quickstart`): about 24,000 pairs in 20 languages. A tenth of the English messages is the
"validation" split, so that no held-out message is seen in any language. Which entries count, how locale names become
language codes and which source wins: `vmsst_jax.data.catalogues.read_catalogues`, which also reads without TensorFlow.

Catalogues of your own, say a translation memory:

    --gin.gettext.folders='["~/project/locale"]' --gin.gettext.languages='["cy", "gd"]'
"""

from collections.abc import Sequence

import gin

from vmsst_jax.data import catalogues
from vmsst_jax.data.text_pairs import TRAIN, VALIDATION
from vmsst_jax.tasks import sources


@gin.configurable("gettext", module="tasks")
def settings(
    folders: Sequence[str] | None = None, languages: Sequence[str] | None = None, held_out: float = 0.1
) -> dict:
    """The task's settings, as `read_catalogues` takes them; bound as `gettext.folders` and so on."""
    return {"folders": folders, "languages": languages, "held_out": held_out}


@gin.register("languages", module="tasks.gettext")
def languages() -> tuple[str, ...]:
    """The language codes that the task yields, English first; reads the catalogues if the settings name no codes.

    In a recipe: `@gettext.languages()`.
    """
    chosen = settings()
    if chosen["languages"] is not None:
        codes = set(chosen["languages"])
    elif chosen["folders"] is None:
        codes = set(catalogues.LANGUAGES)
    else:
        read = catalogues.read_catalogues(**chosen)
        codes = {example["target_lang"] for examples in read.values() for example in examples}
    return ("en", *sorted(codes - {"en"}))


def _read():
    return catalogues.read_catalogues(**settings())


def _made_from() -> dict:
    return {f"gettext.{name}": settings()[name] for name in ("languages", "held_out")}


sources.add_task("gettext", sources.MemorySource(_read, (TRAIN, VALIDATION)), _made_from)
