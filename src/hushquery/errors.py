"""Every error hushquery raises on purpose.

::

    HushqueryError                      exit 1
    |-- UsageError (ValueError)         exit 2   invalid parameter: NaN, negative, unknown name
    |   `-- CalibrationError            exit 2   no mechanism has the parameters asked for
    |-- BudgetError                     exit 3   the privacy budget says no
    |   |-- BudgetRefused               exit 3   not enough left: requested, remaining, account
    |   |-- AccountMissing              exit 3   nobody opened this account, and creating it was not allowed
    |   `-- LedgerCorrupt               exit 3   the ledger can't be trusted: broken chain, unknown kind, newer version
    |-- DataError                       exit 4   the data can't be used as asked
    |   |-- ReportError                 exit 4   a report can't be accepted; its kinds: hushquery.local.report
    |   `-- UnknownValue                exit 4   a value is not in the domain, and the task refuses those
    |-- Unavailable                     exit 69  an engine, a store or an optional package is missing
    |-- NotReady                        exit 75  try again later: a batch too small, a phase not open
    `-- Interrupted                     exit 130 Ctrl-C (SIGTERM: 143); says what was spent

Each error states what happened, why, and what to do about it, and never shows a value from a log.
"""

from __future__ import annotations

from typing import Any


def install(extra: str) -> str:
    """Return how to install an extra: from an index, and in a clone, where hushquery is not on one.

    >>> install("plot")
    "pip install 'hushquery[plot]', or in a clone: .venv/bin/pip install -e '.[plot]'"
    """
    return f"pip install 'hushquery[{extra}]', or in a clone: .venv/bin/pip install -e '.[{extra}]'"


class HushqueryError(Exception):
    """The root of all errors of hushquery: ``what`` happened, ``why``, and how the reader can ``fix`` it."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what = what
        self.why = why
        self.fix = fix
        super().__init__(". ".join(part.rstrip(".") for part in (what, why, fix) if part) + ".")

    def as_dict(self) -> dict[str, str]:
        """Return the error as the plain mapping that ``--json`` prints."""
        return {"error": type(self).__name__, "what": self.what, "why": self.why, "fix": self.fix}


class UsageError(HushqueryError, ValueError):
    """A parameter is invalid."""

    exit_code = 2


class CalibrationError(UsageError):
    """No mechanism exists with the parameters asked for."""


class BudgetError(HushqueryError):
    """The privacy budget does not allow it."""

    exit_code = 3


class BudgetRefused(BudgetError):
    """A spend would take an account over its budget; nothing was recorded and no data was read."""

    account: Any = None  #: the account as it is, with the budget that would have been exceeded
    later: str = ""  #: when more may be spent, where that is known


class AccountMissing(BudgetError):
    """The account to spend from does not exist."""


class LedgerCorrupt(BudgetError):
    """The ledger can't be trusted, so nothing may be spent from it."""


class DataError(HushqueryError):
    """The data can't be used as asked; the message states where budget was spent all the same."""

    exit_code = 4


class Unavailable(HushqueryError):
    """An engine, a store or an optional package is not there."""

    exit_code = 69


class NotReady(HushqueryError):
    """What was asked for does not exist yet; asking later may succeed."""

    exit_code = 75


class Interrupted(HushqueryError):
    """A signal ended the command: 128 and its number, so 130 for Ctrl-C; the message says what was spent."""

    exit_code = 130
