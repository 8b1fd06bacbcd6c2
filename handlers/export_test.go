package handlers

import (
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"likewise/models"
)

// Routes gives what Fiber serves, without middleware.
func (s *Server) Routes() []fiber.Route { return s.app.GetRoutes(true) }

// Answer serves one request without a connection.
func (s *Server) Answer(r *fasthttp.RequestCtx) { s.app.Server().Handler(r) }

// LimitOf names the limit of the routes that have one of their own.
var LimitOf = limitOf

// Hashes says how often a password was hashed.
func (s *Server) Hashes() int64 { return s.passwords.hashed.Load() }

// Permissions gives the permission of each route, by method and path.
func (s *Server) Permissions() map[string]models.Permission { return s.permissions }

// productionCost is what a password's hash costs outside of tests.
var productionCost = passwordCost

// HashCheaply makes hashes of passwords cost next to nothing from here on. Call it before the first test.
func HashCheaply() { passwordCost.Memory, passwordCost.Iterations = 64, 1 }
