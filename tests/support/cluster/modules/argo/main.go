// Evaluates a condition of an Argo Workflows "resource" template on objects, as Argo's executor
// does: the condition is a list of Kubernetes label requirements, whose keys are gjson paths into
// the object. JSON in, "true" or "false" out, a line each.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/labels"
)

type object struct{ json string }

func (o object) Has(path string) bool { return gjson.Get(o.json, path).Exists() }

func (o object) Get(path string) string { return gjson.Get(o.json, path).String() }

func (o object) Lookup(path string) (string, bool) { return o.Get(path), o.Has(path) }

func main() {
	selector, err := labels.Parse(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	requirements, _ := selector.Requirements()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		holds := true
		for _, requirement := range requirements {
			holds = holds && requirement.Matches(object{lines.Text()})
		}
		fmt.Println(holds)
	}
}
