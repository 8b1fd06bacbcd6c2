// Package house has no code but tests: they hold the whole repository to its rules. The words of comments, messages and
// pages are those of the house style, docs/routes.md lists the routes of the contract, and docs/design.md draws the
// packages as they import each other.
package house
