// Serves its pod's name; or asks for what is at a URL, writes a file, reads it: `probe [URL | FILE TEXT | FILE]`.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		if err := do(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	name, _ := os.Hostname()
	fmt.Println("serving as", name)
	http.HandleFunc("/", func(response http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(response, name)
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":8080", nil))
	os.Exit(1)
}

func do(arguments []string) error {
	what := arguments[0]
	if len(arguments) > 1 {
		return os.WriteFile(what, []byte(arguments[1]), 0o600)
	}
	if strings.HasPrefix(what, "/") {
		return show(os.Open(what))
	}
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(what)
	if err != nil {
		return err
	}
	return show(response.Body, nil)
}

func show(found io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	defer found.Close()
	_, err = io.Copy(os.Stdout, found)
	return err
}
