// The order of what a search finds: chapters before the reference of the code. Sphinx's own numbers but for `score`.
var Scorer = {
  score: result => result[4] - (/^(api|genindex)/.test(result[0]) ? 100 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
