"""Multilingual sentence embeddings in JAX: training, conversion and evaluation.

Importing this package starts no JAX backend and loads neither TensorFlow, ScaNN nor gin.
"""

__version__ = "0.1.0"


def load(path, **options):
    """Loads a trained model for embedding text: ``vmsst_jax.load("runs/quickstart").encode(["Hello"])``.

    See :func:`vmsst_jax.retrieval.embedder.load` for the options, what comes back and what is raised.
    """
    from vmsst_jax.retrieval import embedder

    return embedder.load(path, **options)
