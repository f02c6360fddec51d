// Which search of a period is reported: a uniformly random one, chosen while they come in. Only that one is kept.

/** Give a uniformly random whole number below `limit`. */
export function below(limit) {
  const whole = 2 ** 32;
  const fair = whole - (whole % limit);
  for (;;) {
    const [word] = crypto.getRandomValues(new Uint32Array(1));
    if (word < fair) return word % limit;
  }
}

/**
 * Let one more search of a period take part in the choice.
 *
 * The n-th search replaces the one kept with a chance of 1/n, so that after any number of searches each of them is the
 * one kept with the same chance. The others are not remembered.
 */
export function chosen(kept, period, search, draw = below) {
  const count = kept?.period === period ? kept.count + 1 : 1;
  return draw(count) === 0 ? { period, count, ...search } : { ...kept, count };
}

/** Note the first click on a result of a search, if that search is the one kept. */
export function withClick(kept, id, url) {
  return kept?.id === id && !kept.url ? { ...kept, url } : kept;
}
