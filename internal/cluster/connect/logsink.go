package connect

import (
	"maps"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// LogLibraries has what the libraries of Kubernetes log written to a log of ours, and returns that as their logger. client-go
// logs by klog, which would otherwise write lines of its own form to the standard error.
func LogLibraries(log *logrus.Logger) logr.Logger {
	logger := logr.New(&logSink{log: log})
	klog.SetLogger(logger)
	return logger
}

// logSink writes the library's log entries to ours.
type logSink struct {
	log    *logrus.Logger
	fields logrus.Fields
	name   string
}

// Init implements logr.LogSink.
func (s *logSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (s *logSink) Enabled(level int) bool {
	return s.log.IsLevelEnabled(severity(level))
}

// severity returns ours of the library's verbosity.
func severity(level int) logrus.Level {
	if level > 0 {
		return logrus.DebugLevel
	}
	return logrus.InfoLevel
}

// Info implements logr.LogSink.
func (s *logSink) Info(level int, message string, pairs ...any) {
	s.log.WithFields(s.with(pairs)).Log(severity(level), message)
}

// Error implements logr.LogSink.
func (s *logSink) Error(err error, message string, pairs ...any) {
	s.log.WithFields(s.with(pairs)).WithError(err).Error(message)
}

// WithValues implements logr.LogSink.
func (s *logSink) WithValues(pairs ...any) logr.LogSink {
	return &logSink{log: s.log, fields: s.with(pairs), name: s.name}
}

// WithName implements logr.LogSink.
func (s *logSink) WithName(name string) logr.LogSink {
	return &logSink{log: s.log, fields: s.fields, name: name}
}

// with returns the fields with some more, in pairs of name and value.
func (s *logSink) with(pairs []any) logrus.Fields {
	out := logrus.Fields{}
	maps.Copy(out, s.fields)
	if s.name != "" {
		out["part"] = s.name
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if name, ok := pairs[i].(string); ok {
			out[name] = pairs[i+1]
		}
	}
	return out
}
