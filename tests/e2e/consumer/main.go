// A consumer of a queue that the operator made, in another language than the worker's and with the ordinary
// client: it takes COUNT messages from QUEUE at BROKER_URL, writes each order's number, and leaves.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 60 * time.Second

func main() {
	count, err := strconv.Atoi(os.Getenv("COUNT"))
	if err != nil {
		log.Fatalf("COUNT must be a number: %v", err)
	}
	if err := consume(os.Getenv("BROKER_URL"), os.Getenv("QUEUE"), count); err != nil {
		log.Fatal(err)
	}
}

func consume(url, queue string, count int) error {
	connection, err := amqp.Dial(url)
	if err != nil {
		return fmt.Errorf("cannot connect: %w", err)
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Qos(10, 0, false); err != nil {
		return err
	}
	// The queue is there: nothing is declared.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	messages, err := channel.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("cannot consume from %s: %w", queue, err)
	}
	for handled := 0; handled < count; handled++ {
		message, open := <-messages
		if !open {
			return fmt.Errorf("%d of %d messages came within %s", handled, count, patience)
		}
		var order struct {
			ID int `json:"id"`
		}
		if err := json.Unmarshal(message.Body, &order); err != nil {
			return fmt.Errorf("message %s: %w", message.MessageId, err)
		}
		fmt.Printf("%s %s %s %d\n", message.MessageId, message.RoutingKey, message.ContentType, order.ID)
		if err := message.Ack(false); err != nil {
			return err
		}
	}
	return channel.Close()
}
