"""How the ledger words a refusal: what was asked for, what was spent, what is left, and what to do."""

from __future__ import annotations

import math
from dataclasses import replace

from hushquery.core.budget import Budget, Relation, format_delta, format_epsilon
from hushquery.core.ledger.entries import (
    Account,
    AccountTotals,
    Terms,
    account_name,
    down_text,
    epsilon_text,
    is_used_up,
    time_text,
)
from hushquery.core.loss import Loss
from hushquery.errors import BudgetRefused

_PROMISED = "The budget itself can't be raised, because people were promised it"


def refusal(
    key: tuple[str, Relation], totals: AccountTotals, period: int, loss: Loss, budget: Budget, spent: Loss
) -> BudgetRefused:
    """Word why a spend was refused: requested, spent, remaining, and of which account."""
    whole = budget is totals.terms.lifetime or totals.terms.period is None
    now = Account(*key, Terms(budget), totals.opened, period, spent, spent)
    requested, both = loss.epsilon(budget.delta), (spent + loss).epsilon(budget.delta)
    share = "its lifetime" if whole else f"period {period} ({totals.terms.period} each)"
    ends = replace(now, terms=totals.terms).period_ends
    together, rest = f"together {epsilon_text(both)}", down_text(now.remaining_delta)
    fits = f"Spend at most epsilon {down_text(now.remaining_epsilon)}"
    if math.isinf(both):
        left = f"about {rest} of it" if now.remaining_delta else "nothing of it"
        together = (
            f"together they need more than the account's delta of {format_delta(budget.delta)}, which no epsilon makes "
            f"up for, and {left} is left"
        )
        fits = f"Spend less than delta {rest}" if now.remaining_delta else "Spend at delta 0 only"
    error = BudgetRefused(
        f"Insufficient budget in account {account_name(*key)}. Nothing was spent",
        why=f"requested epsilon {epsilon_text(requested)}, spent {epsilon_text(now.spent_epsilon)}, "
        f"remaining {down_text(now.remaining_epsilon)} of epsilon {format_epsilon(budget.epsilon)} at delta "
        f"{format_delta(budget.delta)} for {share}; {together}",
    )
    error.account, error.later = now, "" if whole or ends is None else f"the next period begins at {time_text(ends)}"
    return advised(error, None if is_used_up(budget, now.remaining_epsilon) else fits)


def advised(error: BudgetRefused, fits: str | None, because: str = "") -> BudgetRefused:
    """Return a refusal with what to do: what still fits, or, with None, that the budget is used up and ``because``."""
    account: Account = error.account
    if fits is None:
        delta = f" and delta {down_text(account.remaining_delta)}" if account.terms.budget.delta else ""
        rest = f"{' for a release like this' if because else ''} (left: epsilon {down_text(account.remaining_epsilon)}"
        words = f"The budget of these people is used up{rest}{delta}"
        words += f"; {because}). " if because else "). "
        words += f"Wait: {error.later}" if error.later else "What is published already can still be used, at no cost"
        words += ". The same people can't have a second budget; next time divide one, with --times or a period"
    else:
        words = f"{fits}{f', or wait: {error.later}' if error.later else ''}. {_PROMISED}"
    refused = BudgetRefused(error.what, why=error.why, fix=words)
    refused.account, refused.later = account, error.later
    return refused
