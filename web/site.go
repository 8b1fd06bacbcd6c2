package web

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
)

// siteRoutes are the files that browsers and search engines ask for.
func (s *Server) siteRoutes(mux router) {
	mux.Handle("GET "+assetPath, s.assets)
	mux.Handle("GET /help", s.shared((*visit).help))
	mux.HandleFunc("GET /favicon.ico", s.icon)
	mux.HandleFunc("GET /robots.txt", s.robots)
	mux.HandleFunc("GET /manifest.webmanifest", s.manifest)
	mux.HandleFunc("GET /opensearch.xml", s.openSearch)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	})
}

// siteAge is how long browsers keep these files.
const siteAge = "public, max-age=3600"

func (s *Server) icon(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, s.assets.names["icon.svg"], http.StatusFound)
}

func (s *Server) robots(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", siteAge)
	fmt.Fprintf(w, "User-agent: *\nDisallow: /sign-in\nDisallow: /sign-up\nDisallow: /search\nDisallow: /settings\n"+
		"Disallow: /moderate\nDisallow: /operate\n\nSitemap: %s\n", s.url("/v1/sitemap.xml"))
}

func (s *Server) manifest(w http.ResponseWriter, _ *http.Request) {
	type icon struct {
		Src     string `json:"src"`
		Sizes   string `json:"sizes"`
		Type    string `json:"type"`
		Purpose string `json:"purpose"`
	}
	w.Header().Set("Content-Type", "application/manifest+json")
	w.Header().Set("Cache-Control", siteAge)
	err := json.NewEncoder(w).Encode(struct {
		Name      string `json:"name"`
		ShortName string `json:"short_name"`
		StartURL  string `json:"start_url"`
		Display   string `json:"display"`
		Icons     []icon `json:"icons"`
	}{s.siteName(), s.siteName(), "/", "minimal-ui", []icon{
		{s.assets.names["icon.svg"], "any", "image/svg+xml", "any"},
	}})
	if err != nil {
		s.config.Log.Debug("the browser has gone", "error", err)
	}
}

func (s *Server) openSearch(w http.ResponseWriter, _ *http.Request) {
	type target struct {
		Type     string `xml:"type,attr"`
		Template string `xml:"template,attr"`
	}
	description := struct {
		XMLName     xml.Name `xml:"http://a9.com/-/spec/opensearch/1.1/ OpenSearchDescription"`
		ShortName   string
		Description string
		URL         target `xml:"Url"`
	}{
		ShortName: s.siteName(), Description: "Search " + s.siteName(),
		URL: target{"text/html", s.url("/search?q={searchTerms}")},
	}
	w.Header().Set("Content-Type", "application/opensearchdescription+xml")
	w.Header().Set("Cache-Control", siteAge)
	_, _ = w.Write([]byte(xml.Header)) // the browser has gone, if that fails
	_ = xml.NewEncoder(w).Encode(description)
}

type helpPage struct{ view }

func (v *visit) help() error {
	p := &helpPage{}
	p.Title, p.Canonical = "Writing with Markdown", v.url("/help")
	if err := v.load(); err != nil {
		return err
	}
	v.render(http.StatusOK, "help", p)
	return nil
}
