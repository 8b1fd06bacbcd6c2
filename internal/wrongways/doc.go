// Package wrongways holds no product code. Its tests reproduce the ways to sell limited stock that go wrong, each on
// the real servers with the damage that it does, next to the way of this product. docs/limited-stock.md describes them.
//
// The wrong ways are those of tutorials, so they use tables and keys of their own. Their steps are called one by one,
// in the order in which two processes would carry them out. Nothing depends on the timing of goroutines.
package wrongways
