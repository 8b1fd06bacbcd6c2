// Package pages holds what answers to reads have in common, whatever they show: lists and their cursors, the two halves
// of a page, reads that requests share, entity tags, and the codings of bodies.
package pages
