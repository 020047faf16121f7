// A job in Go that computes and waits in turn, beside a goroutine that serves nobody or a connection
// that is kept for later.
//
//	idle BYSTANDER WORK SECONDS COMPUTE WAIT [PORT]
//
// It writes its phases as tests/programs/phases.py does.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic     = 1
	clockThreadCPUTime = 3
)

var written = [][]any{}

func clock(number uintptr) int64 {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, number, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func processNs() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func waitedNs() int64 {
	text, err := os.ReadFile("/proc/thread-self/schedstat")
	if err != nil {
		panic(err)
	}
	waited, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		panic(err)
	}
	return waited
}

// A goroutine may change its thread while it waits: only a computation knows how long it waited for a CPU.
func phase(kind string, isComputing bool, action func()) {
	began, used, waited := clock(clockMonotonic), processNs(), waitedNs()
	action()
	row := []any{kind, began, clock(clockMonotonic), processNs() - used, int64(0)}
	if isComputing {
		row[4] = waitedNs() - waited
	}
	written = append(written, row)
}

func compute(seconds float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	phase("any", true, func() {
		for end := clock(clockThreadCPUTime) + int64(1e9*seconds); clock(clockThreadCPUTime) < end; {
		}
	})
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, nil)
}

func keepAlive(port string) {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%s/", port))
	if err != nil {
		panic(err)
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

// Rows with which nothing is done.
func readRows(port string) {
	connection, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(connection, "ROWS 0.37")
	go io.Copy(io.Discard, connection)
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	seconds, computeSeconds := number(os.Args[3]), number(os.Args[4])
	pause := time.Duration(1e9 * number(os.Args[5]))
	switch os.Args[1] {
	case "serve":
		serve()
	case "keep_alive":
		keepAlive(os.Args[6])
	case "rows":
		readRows(os.Args[6])
	}
	works := map[string]func(){
		"sleep": func() { time.Sleep(pause) },
		"child": func() {
			if err := exec.Command("sleep", os.Args[5]).Run(); err != nil {
				panic(err)
			}
		},
		"channel": func() { <-time.After(pause) },
		// The thread is parked: another one waits for the time, and wakes it.
		"locked": func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			time.Sleep(pause)
		},
	}
	for end := time.Now().Add(time.Duration(1e9 * seconds)); time.Now().Before(end); {
		compute(computeSeconds)
		phase("sleep", false, works[os.Args[2]])
	}
	text, err := json.Marshal(written)
	if err != nil {
		panic(err)
	}
	file := fmt.Sprintf("%s/%d.json", os.Getenv("TIMED_PHASES"), os.Getpid())
	if err := os.WriteFile(file, text, 0o600); err != nil {
		panic(err)
	}
}
