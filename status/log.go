package status

import (
	"bytes"
	"io"
	"os"

	"github.com/sirupsen/logrus"
)

// NewLog is a logger for people. It is logrus' standard logger, so that what the
// image library says comes out the same way.
func NewLog(w io.Writer) *logrus.Logger {
	log := logrus.StandardLogger()
	log.SetOutput(w)
	format := lineFormat{prefix: "pivot: "}
	if os.Getenv("JOURNAL_STREAM") != "" {
		format.prefix = "" // the journal names the program itself
	}
	log.SetFormatter(format)
	return log
}

// lineFormat is "pivot: STEP: MESSAGE", with the level where it is a problem.
type lineFormat struct{ prefix string }

// Format implements logrus.Formatter.
func (f lineFormat) Format(e *logrus.Entry) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(f.prefix)
	if step, _ := e.Data["step"].(string); step != "" {
		b.WriteString(step + ": ")
	}
	if e.Level <= logrus.WarnLevel {
		b.WriteString(e.Level.String() + ": ")
	}
	b.WriteString(e.Message)
	if err, ok := e.Data[logrus.ErrorKey]; ok {
		b.WriteString(": " + err.(error).Error())
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
