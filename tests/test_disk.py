"""Storage that fails for a while is tried again; what won't pass is raised at once."""

import errno
import logging

import pytest

from vmsst_jax import disk


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.ESTALE, "Stale file handle"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (OSError(errno.EROFS, "Read-only file system"), False),
        (FileNotFoundError(errno.ENOENT, "No such file", "f"), False),
        (ValueError('UNKNOWN: writing "f": [source locations] OS error 5 EIO'), True),
        (ValueError("UNKNOWN: writing f: os_error_code='28'"), False),
        (RuntimeError("UNAVAILABLE: 503 from storage.googleapis.com"), True),
        (RuntimeError("503 rows differ"), True),  # when in doubt it is tried again
        (ValueError("loss = nan"), False),
        (None, False),
    ],
)
def test_what_may_pass(error, passes):
    assert disk.may_pass(error) == passes
    try:
        raise ValueError("saving failed") from error
    except ValueError as wrapped:
        assert disk.may_pass(wrapped) == passes


def test_trying_again(monkeypatch, caplog):
    waits = []
    monkeypatch.setattr(disk.time, "sleep", waits.append)
    answers = [OSError(errno.EIO, "Input/output error"), OSError(errno.ESTALE, "Stale"), "read"]

    def read():
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with caplog.at_level(logging.WARNING):
        assert disk.retrying(read, "reading f") == "read"
    assert waits == [1, 2] and "reading f failed (Input/output error); trying again in 1 s" in caplog.text
    answers = [OSError(errno.EIO, "Input/output error")] * 5
    with pytest.raises(OSError, match="Input/output"):
        disk.retrying(read, "reading f")
    assert waits == [1, 2, 1, 2, 4, 8]
    answers = [OSError(errno.ENOSPC, "No space left on device"), "never"]
    with pytest.raises(OSError, match="No space"):
        disk.retrying(read, "reading f")
    assert answers == ["never"]
