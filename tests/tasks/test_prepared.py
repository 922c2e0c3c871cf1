"""What vmsst_jax.prepare leaves is what seqio's tasks and the recipes read: the same texts, the same tokens."""

import json
import random
import zipfile

import numpy as np
import pytest

from vmsst_jax import prepare
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.parallel import ParallelText
from vmsst_jax.data.tokenizer import Tokenizer

TABLE = """language\tpivot\tthousand_pairs\tcorpora\tfiles
de\ten\t1\tX\tready/en-de/*.tsv*
de\tes\t3\tX\tready/es-de/*.tsv*
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a table and ``out``, prepared from two archives."""
    home, draw = tmp_path_factory.mktemp("prepared"), random.Random(0)
    words = ["".join(draw.choices("abdegiklmnorstuvzöüñ", k=draw.randint(2, 7))) for _ in range(200)]
    (home / "in/X").mkdir(parents=True)
    (home / "table.tsv").write_text(TABLE)
    texts = [" ".join(draw.choices(words, k=draw.randint(3, 9))) for _ in range(400)]
    (home / "v.model").write_bytes(Tokenizer.train(texts, 120).serialized)
    for codes in (("de", "en"), ("de", "es")):
        pair = "-".join(codes)
        with zipfile.ZipFile(home / f"in/X/{pair}.txt.zip", "w") as archive:
            for code in codes:
                draw.shuffle(texts)
                archive.writestr(f"X.{pair}.{code}", "\n".join(texts))
    flags = {"opus": "in", "table": "table.tsv", "output": "out", "vocabulary": "v.model"}
    prepare.main([*(f"--{k}={home}/{v}" for k, v in flags.items()), "--test=none"])
    return home


def test_a_task_reads_the_same_as_the_prepared_cache(prepared, registry, gin_bindings):
    from vmsst_jax.tasks import opus

    opus.register_table("ready", str(prepared / "table.tsv"))
    gin_bindings(f'opus.data_root = "{prepared}/out"')
    tokenizer, languages = Tokenizer.load(prepared / "v.model"), Languages(["de", "en", "es"])
    own = ParallelText("ready", 4, cache=str(prepared / "own")).caches(tokenizer, languages)
    ready = ParallelText("ready", 4, cache=str(prepared / "out/tokens")).caches(tokenizer, languages)
    assert own[1] == ready[1] == [1.0, 3.0]
    for file in sorted((prepared / "own").rglob("*.*")):
        contents = [f.read_bytes() for f in (file, prepared / "out/tokens" / file.relative_to(prepared / "own"))]
        if file.name == "meta.json":  # a prepared cache is not made from a task's files
            contents = [{**json.loads(content), "made_from": {}} for content in contents]
        assert contents[0] == contents[1], file
    assert len(own[0][0]) > 300


def test_a_recipe_trains_on_the_prepared_folder(prepared):
    """The papers' recipe, the written macros and CACHE; no task of that name is registered."""
    from vmsst_jax import config

    recipes = ["vmsst_6l.gin", str(prepared / "out/ready.gin")]
    macros = [f'CACHE = "{prepared}/out/tokens"', f'VOCABULARY_FILE = "{prepared}/v.model"']
    arguments = config.configure(recipes, macros).keywords
    data = arguments["streams"][0].data
    languages, tokenizer = Languages(arguments["languages"]), arguments["tokenizer"]()
    assert languages.codes == ("de", "en", "es")
    data.check(languages)
    stream = data.open(tokenizer, languages, seed=0)
    batch, info = stream.next()
    assert len(info["pair_id"]) == 256 and len(np.unique(batch["lang"])) == 3
