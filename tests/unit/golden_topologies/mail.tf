resource "rabbitmq_exchange" "outbox" {
  name  = "outbox"
  vhost = "shop"

  settings {
    type        = "topic"
    durable     = true
    auto_delete = false
  }
}

resource "rabbitmq_exchange" "outbox_dlx" {
  name  = "outbox.dlx"
  vhost = "shop"

  settings {
    type        = "direct"
    durable     = true
    auto_delete = false
  }
}

resource "rabbitmq_queue" "shop_mail_dlq" {
  name  = "shop.mail.dlq"
  vhost = "shop"

  settings {
    durable        = true
    auto_delete    = false
    arguments_json = jsonencode({
      "x-delivery-limit" = 1000000
      "x-queue-type"     = "quorum"
    })
  }
}

resource "rabbitmq_queue" "shop_mail" {
  name  = "shop.mail"
  vhost = "shop"

  settings {
    durable        = true
    auto_delete    = false
    arguments_json = jsonencode({
      "x-dead-letter-exchange"    = "outbox.dlx"
      "x-dead-letter-routing-key" = "shop.mail"
      "x-dead-letter-strategy"    = "at-least-once"
      "x-delivery-limit"          = 20
      "x-overflow"                = "reject-publish"
      "x-queue-type"              = "quorum"
      "x-single-active-consumer"  = true
    })
  }
}

resource "rabbitmq_binding" "shop_mail_dlq_shop_mail" {
  source           = rabbitmq_exchange.outbox_dlx.name
  vhost            = "shop"
  destination      = rabbitmq_queue.shop_mail_dlq.name
  destination_type = "queue"
  routing_key      = "shop.mail"
  arguments_json   = jsonencode({
    "outbox.dev/owner" = "shop/mail"
  })
}

resource "rabbitmq_binding" "shop_mail_user_created" {
  source           = rabbitmq_exchange.outbox.name
  vhost            = "shop"
  destination      = rabbitmq_queue.shop_mail.name
  destination_type = "queue"
  routing_key      = "user.created"
  arguments_json   = jsonencode({
    "outbox.dev/owner" = "shop/mail"
  })
}
