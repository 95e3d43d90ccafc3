// Sets the quantity of one pet and polls the list. Needs Go 1.21 or newer and nothing else.
//
//	INVENTORY_URL=https://…/v1 INVENTORY_KEY=… go run inventory.go PET_ID QUANTITY
//
// QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	maxTries   = 5
	firstPause = 250 * time.Millisecond
	maxPause   = time.Minute
)

// retried has the statuses of the service, or of a proxy in front of it, after which a retry may succeed.
var retried = map[int]bool{
	http.StatusTooManyRequests:    true,
	http.StatusBadGateway:         true,
	http.StatusServiceUnavailable: true,
	http.StatusGatewayTimeout:     true,
}

// unchanged has the codes that say that nothing was changed, so that a retry is always safe.
var unchanged = map[string]bool{"nothing_changed": true, "too_many_requests": true}

// Item is one entry. An int64 holds every petId exactly.
type Item struct {
	PetID    int64  `json:"petId"`
	Quantity int32  `json:"quantity"`
	Status   string `json:"status"`
}

// Error is the body of every response with a status of 400 or more; branch on Code.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"status"`
	// Tag is the entry's current tag, in a 412 of an update.
	Tag string `json:"-"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Tag is the entity tag of an entry, for If-Match.
func (i Item) Tag() string { return fmt.Sprintf(`"%d-%s"`, i.Quantity, i.Status) }

// Inventory is a client of the service. Its http.Client reuses connections, and is safe for use by many goroutines.
type Inventory struct {
	base, key string
	client    http.Client
}

// List returns the list and its entity tag; no list if it still has the tag etag.
func (i *Inventory) List(etag string) ([]Item, string, error) {
	header := http.Header{}
	if etag != "" {
		header.Set("If-None-Match", etag)
	}
	response, body, err := i.send(http.MethodGet, "/inventory", header, nil, true)
	if err != nil || response.StatusCode == http.StatusNotModified {
		return nil, etag, err
	}
	items := []Item{}
	return items, response.Header.Get("ETag"), read(response, body, &items)
}

// Update sets the quantity of one pet and returns its entry. A retry is safe if you are the only writer of the entry.
func (i *Inventory) Update(petID int64, quantity int32) (Item, error) {
	// This header is not sent. It makes net/http retry the request if an idle connection was closed, as it does with a GET.
	return i.update(petID, quantity, http.Header{"Idempotency-Key": {}}, true)
}

// UpdateIf sets the quantity of one pet if its entry has the tag. It is retried only if nothing was changed: a tag says what
// an entry is, not who made it so, and a retry could not tell its own first attempt from another writer.
func (i *Inventory) UpdateIf(petID int64, quantity int32, tag string) (Item, error) {
	return i.update(petID, quantity, http.Header{"If-Match": {tag}}, false)
}

// Add adds to the quantity of one pet by compare and set, and returns its entry: no other writer's update is lost.
func (i *Inventory) Add(petID int64, difference int32) (Item, error) {
	items, _, err := i.List("")
	if err != nil {
		return Item{}, err
	}
	item, found := find(items, petID)
	if !found {
		message := fmt.Sprintf("No inventory entry exists for petId %d.", petID)
		return Item{}, &Error{Code: "not_found", Message: message, Status: http.StatusNotFound}
	}
	quantity, tag := item.Quantity, item.Tag()
	for {
		updated, err := i.UpdateIf(petID, quantity+difference, tag)
		var failure *Error
		if !errors.As(err, &failure) || failure.Code != "precondition_failed" {
			return updated, err
		}
		// A proxy that compresses responses makes their tags weak, and a weak one never matches.
		tag = strings.TrimPrefix(failure.Tag, "W/")
		if _, unreadable := fmt.Sscanf(tag, `"%d-`, &quantity); unreadable != nil {
			return updated, err
		}
	}
}

func find(items []Item, petID int64) (Item, bool) {
	for _, item := range items {
		if item.PetID == petID {
			return item, true
		}
	}
	return Item{}, false
}

func (i *Inventory) update(petID int64, quantity int32, header http.Header, repeatable bool) (item Item, err error) {
	content, err := json.Marshal(map[string]int32{"quantity": quantity})
	if err != nil {
		return item, err
	}
	header.Set("Content-Type", "application/json")
	path := "/inventory/" + strconv.FormatInt(petID, 10)
	response, body, err := i.send(http.MethodPatch, path, header, content, repeatable)
	if err != nil {
		return item, err
	}
	return item, read(response, body, &item)
}

// send sends a request, and retries it after a timeout, a lost connection or one of the statuses above. Unless it is
// repeatable, it is retried only if nothing was changed.
func (i *Inventory) send(
	method, path string, header http.Header, content []byte, repeatable bool,
) (*http.Response, []byte, error) {
	for tried := 1; ; tried++ {
		request, err := http.NewRequest(method, i.base+path, bytes.NewReader(content))
		if err != nil {
			return nil, nil, err
		}
		request.Header = header
		request.Header.Set("Authorization", "Bearer "+i.key)
		// Jitter, so that clients that failed together do not retry together.
		pause := time.Duration(rand.Int63n(int64(firstPause) << (tried - 1)))
		response, body, err := i.try(request)
		switch {
		case err != nil:
			if tried == maxTries || !repeatable {
				if method != http.MethodGet {
					err = fmt.Errorf("%w. It may have been applied", err)
				}
				return nil, nil, err
			}
		case response.StatusCode == http.StatusOK || response.StatusCode == http.StatusNotModified:
			return response, body, nil
		default:
			wait := retryAfter(response)
			failure := &Error{Tag: response.Header.Get("ETag")}
			unreadable := read(response, body, failure)
			mayRetry := unchanged[failure.Code] || repeatable && retried[response.StatusCode]
			if !mayRetry || tried == maxTries || wait > maxPause {
				if unreadable != nil {
					return nil, nil, unreadable
				}
				return nil, nil, failure
			}
			pause += wait
		}
		time.Sleep(pause)
	}
}

// retryAfter returns how long the server asks to wait. The header has seconds or a date.
func retryAfter(response *http.Response) time.Duration {
	value := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(0, time.Until(date))
}

// read reads the JSON of a response; it may come from a proxy, in HTML.
func read(response *http.Response, body []byte, into any) error {
	kind := response.Header.Get("Content-Type")
	if !strings.HasPrefix(kind, "application/json") || json.Unmarshal(body, into) != nil {
		return fmt.Errorf("the response (%s, %s) is not from the inventory service", response.Status, kind)
	}
	return nil
}

// try reads the whole body, so that the connection can be reused.
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
	timeout, err := strconv.Atoi(setting("INVENTORY_TIMEOUT_SECONDS", "10"))
	if err != nil {
		return err
	}
	inventory := &Inventory{
		base:   setting("INVENTORY_URL", "http://127.0.0.1:3000/v1"),
		key:    os.Getenv("INVENTORY_KEY"),
		client: http.Client{Timeout: time.Duration(timeout) * time.Second},
	}
	items, etag, err := inventory.List("")
	if err != nil {
		return err
	}
	for _, item := range items {
		show(item)
	}
	change := inventory.Update
	if strings.ContainsAny(quantity[:1], "+-") {
		change = inventory.Add
	}
	item, err := change(id, int32(count))
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

func setting(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
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
