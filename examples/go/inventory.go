// Sets the stock of one pet and follows the list. Needs Go 1.21 or newer and nothing else.
//
//	INVENTORY_URL=https://…/v1 INVENTORY_KEY=… go run inventory.go PET_ID QUANTITY
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

const attempts = 5

// again has what the service, or a proxy before it, says when it cannot answer now.
var again = map[int]bool{
	http.StatusBadGateway:         true,
	http.StatusServiceUnavailable: true,
	http.StatusGatewayTimeout:     true,
}

// Item is one entry. An int64 holds every petId exactly.
type Item struct {
	PetID    int64  `json:"petId"`
	Quantity int32  `json:"quantity"`
	Status   string `json:"status"`
}

// Error is the body of every answer with a status of 400 or more; Code is what to branch on.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"status"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Inventory is a client of the service. Its http.Client keeps connections, and is safe for use by many goroutines.
type Inventory struct {
	base, key string
	client    http.Client
}

// List returns the list and its entity tag; no list where it is still the one that etag names.
func (i *Inventory) List(etag string) ([]Item, string, error) {
	header := http.Header{}
	if etag != "" {
		header.Set("If-None-Match", etag)
	}
	response, body, err := i.send(http.MethodGet, "/inventory", header, nil)
	if err != nil || response.StatusCode == http.StatusNotModified {
		return nil, etag, err
	}
	items := []Item{}
	return items, response.Header.Get("ETag"), json.Unmarshal(body, &items)
}

// Update sets the quantity of one pet and returns its entry.
func (i *Inventory) Update(petID int64, quantity int32) (item Item, err error) {
	content, err := json.Marshal(map[string]int32{"quantity": quantity})
	if err != nil {
		return item, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	_, body, err := i.send(http.MethodPatch, "/inventory/"+strconv.FormatInt(petID, 10), header, content)
	if err != nil {
		return item, err
	}
	return item, json.Unmarshal(body, &item)
}

// send sends a request, and again where the service cannot answer now or nothing came back. That is safe for updates,
// too: they are absolute values.
func (i *Inventory) send(method, path string, header http.Header, content []byte) (*http.Response, []byte, error) {
	for attempt := 1; ; attempt++ {
		request, err := http.NewRequest(method, i.base+path, bytes.NewReader(content))
		if err != nil {
			return nil, nil, err
		}
		request.Header = header
		request.Header.Set("Authorization", "Bearer "+i.key)
		wait := attempt
		response, body, err := i.try(request)
		switch {
		case err != nil:
			if attempt == attempts {
				return nil, nil, err
			}
		case response.StatusCode < 400:
			return response, body, nil
		case !again[response.StatusCode] || attempt == attempts:
			failure := &Error{}
			if err := json.Unmarshal(body, failure); err != nil {
				return nil, nil, err
			}
			return nil, nil, failure
		default:
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
				wait = seconds
			}
		}
		time.Sleep(time.Duration(wait) * time.Second)
	}
}

// try reads the body to its end, without which its connection could not be used again.
func (i *Inventory) try(request *http.Request) (*http.Response, []byte, error) {
	response, err := i.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}

func run(petID, quantity string) error {
	id, err := strconv.ParseInt(petID, 10, 64)
	if err != nil {
		return err
	}
	count, err := strconv.ParseInt(quantity, 10, 32)
	if err != nil {
		return err
	}
	base := os.Getenv("INVENTORY_URL")
	if base == "" {
		base = "http://127.0.0.1:3000/v1"
	}
	inventory := &Inventory{
		base:   base,
		key:    os.Getenv("INVENTORY_KEY"),
		client: http.Client{Timeout: 10 * time.Second},
	}
	items, etag, err := inventory.List("")
	if err != nil {
		return err
	}
	for _, item := range items {
		show(item)
	}
	item, err := inventory.Update(id, int32(count))
	if err != nil {
		return err
	}
	show(item)
	for n := 0; n < 2; n++ {
		if items, etag, err = inventory.List(etag); err != nil {
			return err
		}
		if items == nil {
			fmt.Println("unchanged")
		} else {
			fmt.Println("changed")
		}
	}
	return nil
}

func show(item Item) { fmt.Printf("%d: %d %s\n", item.PetID, item.Quantity, item.Status) }

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: inventory PET_ID QUANTITY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
