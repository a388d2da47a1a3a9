// Templates of a chart as Helm makes manifests of them: Go's text/template with sprig's functions and Helm's own few.
// Standard input: {"templates": {NAME: TEXT}, "files": {NAME: TEXT}, "given": {"Values": …, "Chart": …, "Release": …}}.
// Standard output: {NAME: TEXT}. What Helm has and this lacks is an error: an unknown function does not parse.
package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type files map[string]string

func (f files) Get(name string) string { return f[name] }

func main() {
	var asked struct {
		Templates map[string]string
		Files     files
		Given     map[string]any
	}
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	asked.Given["Files"] = asked.Files

	chart := template.New("chart").Option("missingkey=zero").Funcs(sprig.TxtFuncMap())
	chart.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var made strings.Builder
			err := chart.ExecuteTemplate(&made, name, data)
			return made.String(), err
		},
		"required": func(why string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, errors.New(why)
			}
			return value, nil
		},
		"toYaml": func(value any) (string, error) {
			made, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(made), "\n"), err
		},
	})
	for name, text := range asked.Templates {
		_, err := chart.New(name).Parse(text)
		check(err)
	}
	made := map[string]string{}
	for name := range asked.Templates {
		if strings.HasSuffix(name, ".tpl") {
			continue
		}
		var text strings.Builder
		check(chart.ExecuteTemplate(&text, name, asked.Given))
		made[name] = strings.ReplaceAll(text.String(), "<no value>", "")
	}
	check(json.NewEncoder(os.Stdout).Encode(made))
}

func check(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
