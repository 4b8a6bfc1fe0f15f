// SPDX-License-Identifier: MIT
//
// ycsb.cc - YCSB's core workloads against grpc_kv_serve.
//
//	grpc_kv_ycsb load PORT CLIENTS RECORDS
//	grpc_kv_ycsb A-F  PORT CLIENTS RECORDS OPERATIONS
//
// A client is a thread with a channel, so a connection, of its own: one call at
// a time. Every value that is read is verified; a wrong or missing one ends
// with status 1. The first fifth of a client's operations is not measured:
// channels connect in it. Prints one object of JSON.
#include "kv.grpc.pb.h"
#include "load.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace skein::kv;

namespace
{

constexpr uint64_t kWarmPart = 5;

uint64_t NowNs()
{
	return std::chrono::duration_cast<std::chrono::nanoseconds>(
		       std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

[[noreturn]] void Die(const std::string &what)
{
	fprintf(stderr, "grpc_kv_ycsb: %s\n", what.c_str());
	_Exit(1);
}

std::string KeyOf(const load_step &step)
{
	return std::string(step.key, step.key_len);
}

class Client
{
      public:
	Client(load *all, unsigned number, const std::string &addr)
	    : client(load_client_new(all, number))
	{
		grpc::ChannelArguments args;

		// A connection of its own.
		args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
		args.SetMaxReceiveMessageSize(-1);
		stub = Store::NewStub(grpc::CreateCustomChannel(
			addr, grpc::InsecureChannelCredentials(), args));
		if (!client)
			Die("no memory");
	}
	~Client()
	{
		load_client_free(client);
	}

	// The records first, first + every, ... below end.
	void Load(uint64_t first, uint64_t every, uint64_t end)
	{
		load_step step;

		for (uint64_t i = first; i < end; i += every) {
			load_client_record(i, &step);
			Insert(step);
		}
	}

	void Run(uint64_t operations)
	{
		uint64_t warm = operations / kWarmPart;

		for (uint64_t i = 0; i < operations; i++) {
			uint64_t from = NowNs();

			if (i == warm)
				begun = from;
			One();
			ended = NowNs();
			if (i >= warm)
				times.push_back(ended - from);
		}
	}

	std::vector<uint64_t> times;
	uint64_t begun = 0, ended = 0, verified = 0;

      private:
	void Check(const grpc::Status &status, const load_step &step)
	{
		if (!status.ok())
			Die(KeyOf(step) + ": " + status.error_message());
	}

	void Verify(const std::string &key, const std::string &value)
	{
		if (!load_value_ok(key.data(), key.size(), value.data(),
				   value.size()))
			Die("the value of " + key + " is wrong");
		verified++;
	}

	void Read(const load_step &step)
	{
		grpc::ClientContext context;
		Value value;
		Key key;

		key.set_key(step.key, step.key_len);
		Check(stub->Get(&context, key, &value), step);
		Verify(key.key(), value.value());
	}

	void Update(const load_step &step)
	{
		grpc::ClientContext context;
		char field[LOAD_FIELD_LEN];
		Part part;
		Done done;

		load_client_field(client, &step, field);
		part.set_key(step.key, step.key_len);
		part.set_offset(step.field * LOAD_FIELD_LEN);
		part.set_bytes(field, sizeof(field));
		Check(stub->Update(&context, part, &done), step);
	}

	void Insert(const load_step &step)
	{
		grpc::ClientContext context;
		char value[LOAD_VALUE_LEN];
		Record record;
		Done done;

		load_client_value(client, &step, value);
		record.set_key(step.key, step.key_len);
		record.set_value(value, sizeof(value));
		Check(stub->Put(&context, record, &done), step);
	}

	void Scan(const load_step &step)
	{
		grpc::ClientContext context;
		Records records;
		Range range;

		range.set_first(step.key, step.key_len);
		range.set_count(step.count);
		Check(stub->Scan(&context, range, &records), step);
		// The first key is there, so the scan begins with it.
		if (!records.records_size() ||
		    records.records(0).key() != KeyOf(step) ||
		    static_cast<uint32_t>(records.records_size()) > step.count)
			Die("a scan from " + KeyOf(step) + " is wrong");
		for (int i = 0; i < records.records_size(); i++) {
			const Record &r = records.records(i);

			if (i && records.records(i - 1).key() >= r.key())
				Die("a scan is out of order at " + r.key());
			Verify(r.key(), r.value());
		}
	}

	void One()
	{
		load_step step;

		load_client_next(client, &step);
		switch (step.op) {
		case LOAD_READ:
			return Read(step);
		case LOAD_UPDATE:
			return Update(step);
		case LOAD_SCAN:
			return Scan(step);
		case LOAD_RMW:
			Read(step);
			return Update(step);
		case LOAD_INSERT:
			Insert(step);
			if (!load_client_inserted(client, &step))
				Die("too many inserts under way");
		}
	}

	load_client *client;
	std::unique_ptr<Store::Stub> stub;
};

void Print(const char *what, std::vector<std::unique_ptr<Client>> *clients)
{
	std::vector<uint64_t> times;
	uint64_t verified = 0;
	double rate = 0;

	for (auto &c : *clients) {
		verified += c->verified;
		times.insert(times.end(), c->times.begin(), c->times.end());
		// Clients end at different times: each has its own rate.
		if (c->ended > c->begun)
			rate += c->times.size() * 1e9 / (c->ended - c->begun);
	}
	std::sort(times.begin(), times.end());
	printf("{\"what\": \"%s\", \"clients\": %zu, \"ops\": %zu, "
	       "\"verified\": %llu, \"rate\": %.1f, \"p50_ns\": %llu, "
	       "\"p99_ns\": %llu}\n",
	       what, clients->size(), times.size(),
	       static_cast<unsigned long long>(verified), rate,
	       times.empty() ? 0ull : 0ull + times[times.size() / 2],
	       times.empty() ? 0ull : 0ull + times[times.size() * 99 / 100]);
}

} // namespace

int main(int argc, char **argv)
{
	bool loads = argc > 1 && !strcmp(argv[1], "load");

	if (argc != (loads ? 5 : 6) || (!loads && strlen(argv[1]) != 1)) {
		fprintf(stderr,
			"usage: grpc_kv_ycsb load PORT CLIENTS RECORDS\n"
			"       grpc_kv_ycsb A-F PORT CLIENTS RECORDS "
			"OPERATIONS\n");
		return 2;
	}
	std::string addr = std::string("127.0.0.1:") + argv[2];
	uint64_t count = strtoull(argv[3], nullptr, 10);
	uint64_t records = strtoull(argv[4], nullptr, 10);
	uint64_t operations = loads ? 0 : strtoull(argv[5], nullptr, 10);
	load *all = load_new(loads ? 'c' : *argv[1], records, operations);
	std::vector<std::unique_ptr<Client>> clients;
	std::vector<std::thread> threads;

	if (!all || !count)
		Die("no such workload, no clients or no records");
	for (uint64_t i = 0; i < count; i++)
		clients.emplace_back(new Client(all, i, addr));
	for (uint64_t i = 0; i < count; i++)
		threads.emplace_back([&, i] {
			if (loads)
				clients[i]->Load(i, count, records);
			else
				clients[i]->Run(operations / count);
		});
	for (auto &thread : threads)
		thread.join();
	Print(argv[1], &clients);
	clients.clear();
	load_free(all);
	return 0;
}
