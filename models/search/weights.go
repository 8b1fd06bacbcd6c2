package search

// MaxWeight is the maximum weight of a term in a text. The minimum is 1.
const MaxWeight = titleWeight + contentWeight

// The parts of a weight.
const (
	titleWeight   = 400  // for a term in the title
	contentWeight = 300  // approached as a term is repeated in the content
	usualLength   = 200  // terms of a content that is neither short nor long
	saturation    = 1.2  // how slowly contentWeight is approached: k1 of BM25
	lengthShare   = 0.75 // of the saturation that depends on the length: b of BM25
)

// maxTextTerms is the maximum number of distinct terms in the content of a post. Further ones are not indexed.
const maxTextTerms = 10_000

// Weights returns the terms of a post, each with its weight from 1 to MaxWeight.
func Weights(title, content string) map[string]int {
	counts := map[string]int{}
	length := 0
	each(content, func(term string) {
		if _, known := counts[term]; known || len(counts) < maxTextTerms {
			counts[term]++
		}
		length++
	})
	inTitle := map[string]bool{}
	each(title, func(term string) { inTitle[term] = true })

	slowness := saturation * (1 - lengthShare + lengthShare*float64(length)/usualLength)
	weights := make(map[string]int, len(counts)+len(inTitle))
	for term, n := range counts {
		weights[term] = max(1, int(contentWeight*float64(n)/(float64(n)+slowness)))
	}
	for term := range inTitle {
		weights[term] += titleWeight
	}
	return weights
}
