// Package house has only tests, which check the rules of the whole repository. Comments, messages and pages must use
// the words of the house style. docs/routes.md must list the routes of the contract. docs/design.md must draw the
// packages and their imports.
package house
