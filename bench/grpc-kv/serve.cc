// SPDX-License-Identifier: MIT
//
// serve.cc - apps/kv's store behind kv.proto.
//
//	grpc_kv_serve PORT
//
// PORT 0: the kernel's choice. It prints "listening on PORT" and serves until
// SIGTERM, by gRPC's synchronous interface: its threads call us, and one lock
// guards the store.
#include "kv.grpc.pb.h"

extern "C" {
#include "kv/store/hash.h"
#include "kv/store/store.h"
}

#include <grpcpp/grpcpp.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <string>

using namespace skein::kv;
using grpc::ServerContext;
using grpc::Status;
using grpc::StatusCode;

namespace
{

// What the store's callers have to check.
bool KeyOk(const std::string &key)
{
	return !key.empty() && key.size() <= KV_KEY_MAX;
}

const Status kBadKey(StatusCode::INVALID_ARGUMENT, "no such key can be");
const Status kMissing(StatusCode::NOT_FOUND, "the record is missing");

class Service : public Store::Service
{
      public:
	explicit Service(kv_store *store) : store(store)
	{
	}

      private:
	Status Get(ServerContext *, const Key *key, Value *value) override
	{
		const std::string &k = key->key();

		if (!KeyOk(k))
			return kBadKey;
		std::shared_lock<std::shared_mutex> hold(lock);
		const kv_record *r = kv_store_get(
			store, kv_hash(k.data(), k.size()), k.data(), k.size());

		if (!r)
			return kMissing;
		value->set_value(kv_record_val(r), r->val_len);
		return Status::OK;
	}

	Status Put(ServerContext *, const Record *record, Done *) override
	{
		const std::string &k = record->key(), &v = record->value();

		if (!KeyOk(k) || v.size() > KV_VAL_MAX)
			return kBadKey;
		std::unique_lock<std::shared_mutex> hold(lock);

		if (kv_store_put(store, kv_hash(k.data(), k.size()), k.data(),
				 k.size(), v.data(), v.size()))
			return Status(StatusCode::RESOURCE_EXHAUSTED,
				      "no memory");
		return Status::OK;
	}

	Status Update(ServerContext *, const Part *part, Done *) override
	{
		const std::string &k = part->key(), &b = part->bytes();

		if (!KeyOk(k))
			return kBadKey;
		std::unique_lock<std::shared_mutex> hold(lock);
		int rc = kv_store_update(store, kv_hash(k.data(), k.size()),
					 k.data(), k.size(), part->offset(),
					 b.data(), b.size());

		if (rc == -ENOENT)
			return kMissing;
		return rc ? Status(StatusCode::OUT_OF_RANGE, "not in the value")
			  : Status::OK;
	}

	Status Scan(ServerContext *, const Range *range,
		    Records *records) override
	{
		const std::string &k = range->first();

		if (!KeyOk(k))
			return kBadKey;
		std::shared_lock<std::shared_mutex> hold(lock);
		const kv_record *r = kv_store_seek(store, k.data(), k.size());

		for (uint32_t n = 0; r && n < range->count();
		     n++, r = kv_store_next(r)) {
			Record *one = records->add_records();

			one->set_key(kv_record_key(r), r->key_len);
			one->set_value(kv_record_val(r), r->val_len);
		}
		return Status::OK;
	}

	kv_store *store;
	std::shared_mutex lock;
};

} // namespace

int main(int argc, char **argv)
{
	grpc::ServerBuilder builder;
	kv_store *store = nullptr;
	int port = 0, signal;
	sigset_t end;

	if (argc != 2 || kv_store_new(nullptr, &store)) {
		fprintf(stderr, "usage: grpc_kv_serve PORT\n");
		return 2;
	}
	// Before gRPC's threads begin: all of them leave SIGTERM to this one.
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &end, nullptr);
	{
		Service service(store);

		builder.AddListeningPort(std::string("127.0.0.1:") + argv[1],
					 grpc::InsecureServerCredentials(),
					 &port);
		builder.SetMaxReceiveMessageSize(-1);
		builder.RegisterService(&service);
		auto server = builder.BuildAndStart();

		if (!server || !port) {
			fprintf(stderr, "grpc_kv_serve: cannot listen on %s\n",
				argv[1]);
			return 1;
		}
		printf("listening on %d\n", port);
		fflush(stdout);
		sigwait(&end, &signal);
		server->Shutdown(std::chrono::system_clock::now() +
				 std::chrono::milliseconds(100));
	}
	kv_store_free(store);
	return 0;
}
