// Sets the quantity of one pet and polls the list. Needs .NET 8 or newer, or Mono 6, and nothing else.
//
//   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… dotnet run PET_ID QUANTITY
//
// QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading.Tasks;

/// <summary>One entry. A long holds every petId exactly.</summary>
[DataContract]
public sealed class Item
{
    [DataMember(Name = "petId", IsRequired = true)]
    public long PetId { get; set; }

    [DataMember(Name = "quantity", IsRequired = true)]
    public int Quantity { get; set; }

    [DataMember(Name = "status", IsRequired = true)]
    public string Status { get; set; }

    /// <summary>The entity tag of the entry, for If-Match.</summary>
    public string Tag
    {
        get { return "\"" + Quantity + "-" + Status + "\""; }
    }
}

/// <summary>The body of every response with a status of 400 or more.</summary>
[DataContract]
public sealed class ErrorBody
{
    [DataMember(Name = "code", IsRequired = true)]
    public string Code { get; set; }

    [DataMember(Name = "message", IsRequired = true)]
    public string Message { get; set; }
}

/// <summary>An unexpected response.</summary>
public sealed class InventoryException : Exception
{
    public InventoryException(int status, string code, string message)
        : base(code == null ? message : code + ": " + message)
    {
        Status = status;
        Code = code;
    }

    public int Status { get; }

    /// <summary>Branch on it; null if the response is not from the service.</summary>
    public string Code { get; }
}

/// <summary>A list with its entity tag; without items if the list still has that tag.</summary>
public sealed class Listing
{
    public Listing(List<Item> items, string tag)
    {
        Items = items;
        Tag = tag;
    }

    public List<Item> Items { get; }

    public string Tag { get; }
}

/// <summary>A client of the service. It reuses connections, and is safe for use by many threads.</summary>
public sealed class Inventory
{
    private const int MaxTries = 5;
    private static readonly TimeSpan FirstPause = TimeSpan.FromMilliseconds(250);
    private static readonly TimeSpan MaxPause = TimeSpan.FromMinutes(1);

    // Statuses of the service, or of a proxy in front of it, after which a retry may succeed.
    private static readonly int[] RetriedStatuses = { 429, 502, 503, 504 };

    private static readonly Random Jitter = new Random();

    private readonly string baseUrl;
    private readonly string key;
    private readonly HttpClient client;

    public Inventory(string baseUrl, string key, TimeSpan timeout)
    {
        this.baseUrl = baseUrl;
        this.key = key;
        // Timeout of one attempt, including its body.
        client = new HttpClient(new HttpClientHandler { AllowAutoRedirect = false }) { Timeout = timeout };
    }

    /// <summary>The list, or only its tag if it still has the given tag, which may be null.</summary>
    public async Task<Listing> List(string tag)
    {
        using (var response = await Send("GET", "/inventory", "If-None-Match", tag, null, MaxTries))
        {
            if ((int)response.StatusCode == 304) return new Listing(null, tag);
            var newTag = response.Headers.ETag == null ? null : response.Headers.ETag.ToString();
            return new Listing(await Read<List<Item>>(response), newTag);
        }
    }

    /// <summary>
    /// Sets the quantity and returns the entry. A retry is safe if you are the only writer of the entry. With a tag, the
    /// entry is set only if it has that tag, and the request is not retried: a tag says what an entry is, not who made it
    /// so, and a retry could not tell its own first attempt from another writer.
    /// </summary>
    public async Task<Item> Update(long petId, int quantity, string tag = null)
    {
        var body = "{\"quantity\":" + quantity + "}";
        var tries = tag == null ? MaxTries : 1;
        using (var response = await Send("PATCH", "/inventory/" + petId, "If-Match", tag, body, tries))
        {
            return await Read<Item>(response);
        }
    }

    /// <summary>
    /// Adds to the quantity by compare and set, and returns the entry: no other writer's update is lost.
    /// </summary>
    public async Task<Item> Add(long petId, int difference)
    {
        while (true)
        {
            var item = (await List(null)).Items.FirstOrDefault(found => found.PetId == petId);
            if (item == null)
            {
                throw new InventoryException(404, "not_found", "No inventory entry exists for petId " + petId + ".");
            }
            try
            {
                return await Update(petId, item.Quantity + difference, item.Tag);
            }
            catch (InventoryException error) when (error.Code == "precondition_failed")
            {
                // Another writer came first: read again.
            }
        }
    }

    /// <summary>Sends a request, and retries it after a timeout, a lost connection or a retryable status.</summary>
    private async Task<HttpResponseMessage> Send(
        string method, string path, string condition, string tag, string body, int tries)
    {
        for (var tried = 1; ; tried++)
        {
            // Jitter, so that clients that failed together do not retry together.
            var pause = TimeSpan.FromTicks((long)(FirstPause.Ticks * Math.Pow(2, tried - 1) * NextJitter()));
            try
            {
                var response = await Try(method, path, condition, tag, body);
                var status = (int)response.StatusCode;
                if (status == 200 || status == 304) return response;
                using (response)
                {
                    var wait = RetryAfter(response);
                    if (!RetriedStatuses.Contains(status) || wait > MaxPause || tried >= tries)
                    {
                        var error = await Read<ErrorBody>(response);
                        throw new InventoryException(status, error.Code, error.Message);
                    }
                    pause += wait;
                }
            }
            catch (Exception error) when (error is HttpRequestException || error is TaskCanceledException || error is IOException)
            {
                if (tried >= tries)
                {
                    // A timeout arrives as a canceled task.
                    var reason = error is TaskCanceledException ? "timed out" : error.GetBaseException().Message;
                    throw new HttpRequestException("No response to " + method + " " + path + ": " + reason, error);
                }
            }
            await Task.Delay(pause);
        }
    }

    private async Task<HttpResponseMessage> Try(string method, string path, string condition, string tag, string body)
    {
        using (var request = new HttpRequestMessage(new HttpMethod(method), baseUrl + path))
        {
            request.Headers.TryAddWithoutValidation("Authorization", "Bearer " + key);
            if (tag != null) request.Headers.TryAddWithoutValidation(condition, tag);
            if (body != null) request.Content = new StringContent(body, Encoding.UTF8, "application/json");
            return await client.SendAsync(request, HttpCompletionOption.ResponseContentRead);
        }
    }

    /// <summary>Reads the JSON of a response; it may come from a proxy, in HTML.</summary>
    private static async Task<T> Read<T>(HttpResponseMessage response)
    {
        var bytes = await response.Content.ReadAsByteArrayAsync();
        var type = response.Content.Headers.ContentType;
        try
        {
            if (type == null || type.MediaType != "application/json") throw new SerializationException();
            using (var stream = new MemoryStream(bytes))
            {
                return (T)new DataContractJsonSerializer(typeof(T)).ReadObject(stream);
            }
        }
        catch (SerializationException)
        {
            var status = (int)response.StatusCode;
            throw new InventoryException(
                status, null, "The response (" + status + ", " + type + ") is not from the inventory service");
        }
    }

    /// <summary>How long the server asks to wait. The header has seconds or a date.</summary>
    private static TimeSpan RetryAfter(HttpResponseMessage response)
    {
        var value = response.Headers.RetryAfter;
        if (value == null) return TimeSpan.Zero;
        var wait = value.Delta ?? value.Date - DateTimeOffset.UtcNow ?? TimeSpan.Zero;
        return wait > TimeSpan.Zero ? wait : TimeSpan.Zero;
    }

    private static double NextJitter()
    {
        lock (Jitter) return Jitter.NextDouble();
    }
}

public static class Program
{
    public static int Main(string[] arguments)
    {
        if (!Regex.IsMatch(string.Join(" ", arguments), "^-?[0-9]+ [+-]?[0-9]+$"))
        {
            Console.Error.WriteLine("usage: inventory PET_ID QUANTITY");
            return 2;
        }
        var inventory = new Inventory(
            Setting("INVENTORY_URL", "http://127.0.0.1:3000/v1"),
            Setting("INVENTORY_KEY", ""),
            TimeSpan.FromSeconds(int.Parse(Setting("INVENTORY_TIMEOUT_SECONDS", "10"))));
        try
        {
            var isChange = "+-".Contains(arguments[1].Substring(0, 1));
            Run(inventory, long.Parse(arguments[0]), int.Parse(arguments[1]), isChange).GetAwaiter().GetResult();
            return 0;
        }
        catch (Exception error) when (error is InventoryException || error is HttpRequestException || error is OverflowException)
        {
            Console.Error.WriteLine(error.Message);
            return 1;
        }
    }

    private static async Task Run(Inventory inventory, long petId, int quantity, bool isChange)
    {
        var listing = await inventory.List(null);
        listing.Items.ForEach(Show);
        Show(isChange ? await inventory.Add(petId, quantity) : await inventory.Update(petId, quantity));
        for (var round = 0; round < 2; round++)
        {
            listing = await inventory.List(listing.Tag);
            Console.WriteLine(listing.Items == null ? "unchanged" : "changed");
        }
    }

    private static string Setting(string name, string fallback)
    {
        return Environment.GetEnvironmentVariable(name) ?? fallback;
    }

    private static void Show(Item item)
    {
        Console.WriteLine(item.PetId + ": " + item.Quantity + " " + item.Status);
    }
}
