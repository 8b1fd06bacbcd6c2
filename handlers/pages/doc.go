// Package pages holds what answers to reads have in common, whatever they show: the cursors of lists, entity tags, and
// the codings of bodies.
package pages
