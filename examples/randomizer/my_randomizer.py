"""Yes, no, or no answer: a randomizer for clients, complete, in less than 60 lines of code."""

from dataclasses import dataclass

import numpy as np

from hushquery.core.budget import Relation
from hushquery.core.loss import Loss
from hushquery.core.registry import Mechanism, Pair
from hushquery.local.randomizer import ONE, chance_up, checked_epsilon, e_to, loss_of_ratio, within_budget

SKIP = ONE // 4  # a quarter of all clients say nothing, whatever their value is


@dataclass(frozen=True)
class YesNoSkip(Mechanism[int]):
    """The truth with chance truth/2^53, the opposite with chance lie/2^53, else nothing.

    **Guarantee:** pure epsilon = ln(truth/lie) for one report, replace-one.
    **Estimator:** (1 + mean/gap)/2 for the share of yes, gap = (truth - lie)/2^53; unbiased.
    """

    lie: int  # over 2^53, as everything that runs on a client

    name = "yes-no-skip"
    summary = "randomised response that may say nothing"
    kind = "randomizer"
    relation = Relation.REPLACE_ONE

    @classmethod
    def calibrate(cls, epsilon, delta):  # the smallest chance of a lie within epsilon; delta is not needed
        lie = chance_up((ONE - SKIP) / (e_to(checked_epsilon(epsilon)) + 1) / ONE)
        return cls(within_budget(lie, +1, lambda lie: cls(lie).epsilon, epsilon))

    @property
    def truth_chance(self):
        return ONE - SKIP - self.lie

    @property
    def epsilon(self):  # from the integers that run, rounded up
        return loss_of_ratio(self.truth_chance, self.lie)

    @property
    def loss(self):
        return Loss(pure=(self.epsilon,))

    def pairs(self):  # the neighbouring datasets on which it loses most
        return [Pair("yes or no", 0, 1)]

    def run(self, dataset, n, bits):  # 1 is yes, -1 is no, 0 says nothing
        words = bits.words(n) >> np.uint64(11)  # 53 random bits for each client
        says = np.where(words < self.truth_chance, 1, np.where(words < self.truth_chance + self.lie, -1, 0))
        return (says * (2 * dataset - 1)).astype(np.int64).reshape(n, 1)

    def law(self, dataset):  # the exact chance of every output of run
        sign = 2 * dataset - 1
        return {(sign,): self.truth_chance / ONE, (-sign,): self.lie / ONE, (0,): SKIP / ONE}

    def truth(self, dataset):  # what the mean of run is
        return [(2 * dataset - 1) * (self.truth_chance - self.lie) / ONE]

    def variance(self, dataset):
        return [(self.truth_chance + self.lie) / ONE - self.truth(dataset)[0] ** 2]

    def estimate(self, reports):  # the share of yes among many clients, and its standard error
        gap = (self.truth_chance - self.lie) / ONE
        return (1 + reports.mean() / gap) / 2, reports.std(ddof=1) / len(reports) ** 0.5 / gap / 2
