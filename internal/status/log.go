package status

import (
	"io"
	"strings"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/printable"
)

// NewLog returns a logger that writes lines for people to w. It also sends them with their
// fields to the journal, unless send is nil.
func NewLog(w io.Writer, send Sink) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(w)
	log.SetFormatter(&lineFormat{})
	if send != nil {
		log.AddHook(hook{send})
	}
	return log
}

// Quiet makes a logger of NewLog write only warnings and errors, with their hints, for people. The
// journal still gets everything.
func Quiet(log *logrus.Logger) { log.SetFormatter(&lineFormat{quiet: true}) }

// hintPrefix begins an entry with the hint of the error in the entry before it.
const hintPrefix = "hint: "

// lineFormat formats lines as "pivot: STEP: MESSAGE", with the level for warnings and errors.
// Control characters in a message are escaped.
type lineFormat struct{ quiet bool }

// Format implements logrus.Formatter.
func (f *lineFormat) Format(e *logrus.Entry) ([]byte, error) {
	if f.quiet && e.Level > logrus.WarnLevel && !strings.HasPrefix(e.Message, hintPrefix) {
		return nil, nil
	}
	return []byte("pivot: " + text(e) + "\n"), nil
}

// text returns the text of an entry for the console and the journal.
func text(e *logrus.Entry) string {
	line := ""
	if step, _ := e.Data[fieldStep].(string); step != "" {
		line = step + ": "
	}
	if e.Level <= logrus.WarnLevel {
		line += e.Level.String() + ": "
	}
	line += e.Message
	if err, ok := e.Data[logrus.ErrorKey].(error); ok {
		line += ": " + err.Error()
	}
	return printable.Text(line)
}
