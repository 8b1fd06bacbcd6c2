package handlers

import "github.com/gofiber/fiber/v2"

// Routes gives what Fiber serves, without middleware.
func (s *Server) Routes() []fiber.Route { return s.app.GetRoutes(true) }
