// Threads that share the rows of one call. Rows are cut into equal chunks, and whoever is free takes the next: a helper
// that the operating system has not woken yet costs nothing but its share. Nobody spins for long: on a machine with few
// cores a spinning thread takes the time of those who serve the network.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace antiphon {

class Crew {
 public:
  // helpers: threads beside the caller's.
  explicit Crew(int helpers) {
    for (int i = 1; i <= helpers; ++i) threads_.emplace_back([this, i] { serve(i); });
  }

  ~Crew() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    called_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int hands() const { return int(threads_.size()) + 1; }

  // work(hand, chunk) for all chunks; hand in [0, hands()) says whose scratch to use. Returns when all are done.
  template <typename Work>
  void run(int chunks, const Work& work) {
    const Call call{[](const void* w, int hand, int chunk) { (*static_cast<const Work*>(w))(hand, chunk); }, &work};
    if (chunks <= 1 || threads_.empty()) {
      for (int chunk = 0; chunk < chunks; ++chunk) call(0, chunk);
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_ = call;
      chunks_ = chunks;
      next_ = 0;
      ++call_;
    }
    called_.notify_all();
    take(0, call, chunks);
    std::unique_lock<std::mutex> lock(mutex_);
    work_ = Call{};  // whoever has not begun by now finds nothing
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  struct Call {  // a function without an allocation
    void (*function)(const void*, int, int) = nullptr;
    const void* context = nullptr;
    void operator()(int hand, int chunk) const { function(context, hand, chunk); }
  };

  void take(int hand, Call work, int chunks) {
    for (int chunk; (chunk = next_.fetch_add(1)) < chunks;) work(hand, chunk);
  }

  void serve(int hand) {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      called_.wait(lock, [&] { return over_ || (work_.function && call_ != seen); });
      if (over_) return;
      seen = call_;
      const Call work = work_;
      const int chunks = chunks_;
      ++busy_;
      lock.unlock();
      take(hand, work, chunks);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable called_, done_;
  std::vector<std::thread> threads_;
  Call work_;
  std::atomic<int> next_{0};
  int chunks_ = 0, busy_ = 0;
  uint64_t call_ = 0;
  bool over_ = false;
};

}  // namespace antiphon
