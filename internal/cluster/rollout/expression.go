package rollout

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// maxCheckCost limits an evaluation, in cel-go's units: about one for each step. A node with some hundred labels,
// conditions and images is far below it.
const maxCheckCost = 100_000

// Check is a compiled condition: an administrator's, of health of a pool's nodes. It is an expression in the Common
// Expression Language over the variable node, a Node object.
type Check struct{ program cel.Program }

// CompileCheck compiles a condition. The error says where it is wrong, that its value is no bool, or which field it uses that it
// would never see.
func CompileCheck(expression string) (Check, error) {
	base := []cel.EnvOption{cel.OptionalTypes(), ext.Strings()}
	typed := append(base, ext.NativeTypes(reflect.TypeFor[checkedNode](), ext.ParseStructTag("json")), cel.Variable("node", cel.ObjectType("rollout.checkedNode")))
	if _, _, err := compileIn(expression, typed); err != nil {
		return Check{}, err
	}
	env, ast, err := compileIn(expression, append(base, cel.Variable("node", cel.DynType)))
	if err != nil {
		return Check{}, err
	}
	program, err := env.Program(ast, cel.CostLimit(maxCheckCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return Check{}, fmt.Errorf("cannot prepare the condition: %w", err)
	}
	return Check{program}, nil
}

// compileIn compiles a condition in an environment. Types of Go are for the check only: a program with them wants values of
// these types.
func compileIn(expression string, options []cel.EnvOption) (*cel.Env, *cel.Ast, error) {
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot prepare the language of conditions: %w", err)
	}
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, nil, fmt.Errorf("cannot compile the condition: %w", err)
	}
	if kind := ast.OutputType(); !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
		return nil, nil, fmt.Errorf("cannot use the condition: its value is a %s, not a bool", kind)
	}
	return env, ast, nil
}

// Holds reports whether the condition is true for a Node, given as its decoded JSON. A member that the node
// lacks is an error, unless the condition asks with has() or with ? whether it is there.
func (c Check) Holds(node map[string]any) (bool, error) {
	value, _, err := c.program.Eval(map[string]any{"node": node})
	if err != nil {
		return false, fmt.Errorf("cannot evaluate the condition: %w", err)
	}
	holds, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("cannot use the condition: its value is a %s, not a bool", value.Type().TypeName())
	}
	return holds, nil
}
