package handlers

import (
	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// Routes gives what Fiber serves, without middleware.
func (s *Server) Routes() []fiber.Route { return s.app.GetRoutes(true) }

// Permissions gives the permission of each route, by method and path.
func (s *Server) Permissions() map[string]models.Permission { return s.permissions }
