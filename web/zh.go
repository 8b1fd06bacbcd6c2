package web

var chinese = map[string]string{}
