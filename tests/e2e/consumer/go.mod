module outbox.dev/consumer

go 1.23

require github.com/rabbitmq/amqp091-go v1.10.0
