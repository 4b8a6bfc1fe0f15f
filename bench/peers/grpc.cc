// SPDX-License-Identifier: MIT
//
// grpc.cc - the two ends of a gRPC call, as a peer of Skein's.
//
//	peer_grpc serve tcp|unix unary|stream ADDR
//	peer_grpc call tcp|unix unary|stream ADDR SIZE WINDOW MILLISECONDS
//
// The same words and the same JSON as sock.c. The server answers unary calls
// from one completion queue by one thread, and streams by its synchronous
// interface; it ends with its first client's connection, which sends it a call
// without bytes to say so. The client waits in the call itself when it makes
// one at a time, else in a completion queue.
#include "echo.grpc.pb.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using skein::peers::Bytes;
using skein::peers::Echo;

namespace
{

constexpr int kServerCalls = 128;
constexpr uint64_t kWarmPart = 5;
// So much longer, while nothing has been measured.
constexpr uint64_t kLateNs = 5000000000;

uint64_t NowNs()
{
	return std::chrono::duration_cast<std::chrono::nanoseconds>(
		       std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

[[noreturn]] void Die(const std::string &what)
{
	fprintf(stderr, "peer_grpc: %s\n", what.c_str());
	exit(1);
}

class Service : public Echo::WithAsyncMethod_Unary<Echo::Service>
{
	grpc::Status Stream(
		grpc::ServerContext *,
		grpc::ServerReaderWriter<Bytes, Bytes> *stream) override
	{
		Bytes bytes;

		while (stream->Read(&bytes))
			stream->Write(bytes);
		return grpc::Status::OK;
	}
};

// One unary call from being waited for to having been answered.
struct ServerCall {
	ServerCall(Service *service, grpc::ServerCompletionQueue *queue)
	    : answer(&context)
	{
		service->RequestUnary(&context, &bytes, &answer, queue, queue,
				      this);
	}

	grpc::ServerContext context;
	Bytes bytes;
	grpc::ServerAsyncResponseWriter<Bytes> answer;
	bool answered = false;
};

// Until the call without bytes has been answered.
void ServeUnary(Service *service, grpc::ServerCompletionQueue *queue)
{
	bool ok, last = false;
	void *tag;

	for (int i = 0; i < kServerCalls; i++)
		new ServerCall(service, queue);
	while (queue->Next(&tag, &ok)) {
		auto *call = static_cast<ServerCall *>(tag);

		if (!ok || call->answered) {
			bool was_last = last && call->bytes.data().empty();

			delete call;
			if (was_last)
				return;
			continue;
		}
		new ServerCall(service, queue);
		last = last || call->bytes.data().empty();
		call->answered = true;
		call->answer.Finish(call->bytes, grpc::Status::OK, call);
	}
}

int Serve(bool local, const std::string &addr)
{
	grpc::ServerBuilder builder;
	Service service;
	int port = 0;

	builder.AddListeningPort(local ? "unix:" + addr : "127.0.0.1:" + addr,
				 grpc::InsecureServerCredentials(), &port);
	builder.SetMaxReceiveMessageSize(-1);
	builder.RegisterService(&service);
	auto queue = builder.AddCompletionQueue();
	auto server = builder.BuildAndStart();

	if (!server || (!local && !port))
		Die("cannot listen on " + addr);
	printf("listening on %s\n",
	       local ? addr.c_str() : std::to_string(port).c_str());
	fflush(stdout);
	ServeUnary(&service, queue.get());
	server->Shutdown(std::chrono::system_clock::now() +
			 std::chrono::milliseconds(100));
	queue->Shutdown();
	for (bool ok;;) {
		void *tag;

		if (!queue->Next(&tag, &ok))
			break;
		delete static_cast<ServerCall *>(tag);
	}
	return 0;
}

// What a client does, and what it has counted.
class Load
{
      public:
	Load(uint64_t size, uint64_t window, uint64_t ms)
	    : window(window), begin(NowNs()),
	      warm(begin + ms * 1000000 / kWarmPart), end(begin + ms * 1000000)
	{
		bytes.set_data(std::string(size, 'x'));
		times.reserve(1 << 20);
	}

	// An operation has ended that began at `from`. False: time is up.
	bool Done(uint64_t from)
	{
		uint64_t now = NowNs();

		all++;
		last = now;
		if (!begun) {
			if (now >= warm)
				begun = now;
		} else {
			ops++;
			if (window == 1)
				times.push_back(now - from);
		}
		return now < end || (!ops && now < end + kLateNs);
	}

	void Print()
	{
		std::sort(times.begin(), times.end());
		printf("{\"ops\": %llu, \"ops_all\": %llu, \"seconds\": %.9f, "
		       "\"p50_ns\": %llu, \"p99_ns\": %llu}\n",
		       static_cast<unsigned long long>(ops),
		       static_cast<unsigned long long>(all),
		       begun ? static_cast<double>(last - begun) * 1e-9 : 0,
		       static_cast<unsigned long long>(Percentile(50)),
		       static_cast<unsigned long long>(Percentile(99)));
	}

	Bytes bytes;
	const uint64_t window;

      private:
	uint64_t Percentile(uint64_t percent) const
	{
		if (times.empty())
			return 0;
		return times[std::min(times.size() - 1,
				      times.size() * percent / 100)];
	}

	uint64_t begin, warm, end, last = 0, begun = 0, ops = 0, all = 0;
	std::vector<uint64_t> times;
};

void Check(const grpc::Status &status)
{
	if (!status.ok())
		Die(status.error_message());
}

void CallOne(Echo::Stub *stub, Load *load)
{
	for (uint64_t from = NowNs(), more = 1; more; from = NowNs()) {
		grpc::ClientContext context;
		Bytes back;

		Check(stub->Unary(&context, load->bytes, &back));
		more = load->Done(from);
	}
}

struct ClientCall {
	grpc::ClientContext context;
	Bytes back;
	grpc::Status status;
	std::unique_ptr<grpc::ClientAsyncResponseReader<Bytes>> reader;
};

void CallMany(Echo::Stub *stub, Load *load)
{
	grpc::CompletionQueue queue;
	uint64_t under_way = 0;
	bool more = true, ok;
	void *tag;
	auto start = [&] {
		auto *call = new ClientCall;

		call->reader =
			stub->AsyncUnary(&call->context, load->bytes, &queue);
		call->reader->Finish(&call->back, &call->status, call);
		under_way++;
	};

	while (under_way < load->window)
		start();
	while (under_way && queue.Next(&tag, &ok)) {
		auto *call = static_cast<ClientCall *>(tag);

		Check(call->status);
		delete call;
		under_way--;
		more = load->Done(0) && more;
		if (more)
			start();
	}
	queue.Shutdown();
}

void StreamOne(Echo::Stub *stub, Load *load)
{
	grpc::ClientContext context;
	auto stream = stub->Stream(&context);
	Bytes back;

	for (uint64_t from = NowNs(), more = 1; more; from = NowNs()) {
		if (!stream->Write(load->bytes) || !stream->Read(&back))
			Die("the stream has ended");
		more = load->Done(from);
	}
	stream->WritesDone();
	Check(stream->Finish());
}

// One Write and one Read are under way at a time, as gRPC allows: a window's
// other messages wait in its buffers or in `owed`.
void StreamMany(Echo::Stub *stub, Load *load)
{
	char tag_start, tag_read, tag_write, tag_end;
	grpc::ClientContext context;
	grpc::CompletionQueue queue;
	auto stream = stub->AsyncStream(&context, &queue, &tag_start);
	uint64_t owed = load->window;
	bool writing = false, more = true, ok;
	grpc::Status status;
	Bytes back;
	void *tag;

	while (more && queue.Next(&tag, &ok)) {
		if (!ok)
			Die("the stream has ended");
		if (tag == &tag_write)
			writing = false;
		if (tag == &tag_read) {
			more = load->Done(0);
			owed++;
		}
		if (more && tag != &tag_write)
			stream->Read(&back, &tag_read);
		if (more && owed && !writing) {
			stream->Write(load->bytes, &tag_write);
			writing = true;
			owed--;
		}
	}
	context.TryCancel();
	stream->Finish(&status, &tag_end);
	while (queue.Next(&tag, &ok) && tag != &tag_end)
		;
	queue.Shutdown();
}

int Call(bool local, bool unary, const std::string &addr, Load load)
{
	grpc::ChannelArguments args;
	args.SetMaxReceiveMessageSize(-1);
	auto channel = grpc::CreateCustomChannel(
		local ? "unix:" + addr : "127.0.0.1:" + addr,
		grpc::InsecureChannelCredentials(), args);
	auto stub = Echo::NewStub(channel);
	grpc::ClientContext context;
	Bytes nothing, back;

	if (unary)
		load.window == 1 ? CallOne(stub.get(), &load)
				 : CallMany(stub.get(), &load);
	else
		load.window == 1 ? StreamOne(stub.get(), &load)
				 : StreamMany(stub.get(), &load);
	load.Print();
	Check(stub->Unary(&context, nothing, &back));
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	std::vector<std::string> words(argv + 1, argv + argc);

	if (words.size() == 4 && words[0] == "serve")
		return Serve(words[1] == "unix", words[3]);
	if (words.size() != 7 || words[0] != "call") {
		fprintf(stderr, "usage: peer_grpc serve tcp|unix unary|stream "
				"ADDR\n"
				"       peer_grpc call tcp|unix unary|stream "
				"ADDR SIZE WINDOW MILLISECONDS\n");
		return 2;
	}
	return Call(words[1] == "unix", words[2] == "unary", words[3],
		    Load(std::stoull(words[4]), std::stoull(words[5]),
			 std::stoull(words[6])));
}
